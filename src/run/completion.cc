// divisi completion: scripts for shells, from the table of flags.
#include "run/environment.h"
#include "run/job_commands.h"
#include "run/options.h"

#include <fmt/format.h>

#include <cstdio>

namespace divisi::run {
namespace {

constexpr std::string_view kCommands =
    "run jobs logs describe scale suspend resume delete restart completion version kube dist tune";

std::string all_flags() {
  std::string flags = "--help";
  for (const FlagInfo& flag : run_flags()) flags += fmt::format(" --{}", flag.name);
  return flags;
}

std::string bash_script() {
  return fmt::format(R"SH(_divisi() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{}' -- "$word")); return
  fi
  case "${{COMP_WORDS[1]}}" in
    run)
      case "$before" in
        --backend) COMPREPLY=($(compgen -W 'local ssh slurm dijob job' -- "$word")) ;;
        --topology) COMPREPLY=($(compgen -W 'star mesh alone' -- "$word")) ;;
        -o|--output) COMPREPLY=($(compgen -W 'yaml json sh' -- "$word")) ;;
        *) case "$word" in
             -*) COMPREPLY=($(compgen -W '{}' -- "$word")) ;;
             *) COMPREPLY=($(compgen -f -- "$word")) ;;
           esac ;;
      esac ;;
    logs|describe|scale|suspend|resume|delete|restart)
      COMPREPLY=($(compgen -W "$(divisi jobs -o name 2>/dev/null)" -- "$word")) ;;
    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$word")) ;;
  esac
}}
complete -o default -F _divisi divisi
)SH",
                     kCommands, all_flags());
}

std::string fish_script() {
  std::string text =
      fmt::format("complete -c divisi -f -n __fish_use_subcommand -a '{}'\n", kCommands);
  for (const FlagInfo& flag : run_flags()) {
    std::string description(flag.description);
    std::erase(description, '\'');
    text += fmt::format("complete -c divisi -n '__fish_seen_subcommand_from run' -l {} -d '{}'\n",
                        flag.name, description);
  }
  return text +
         "complete -c divisi -f -n '__fish_seen_subcommand_from logs describe scale suspend resume "
         "delete restart' -a "
         "'(divisi jobs -o name 2>/dev/null)'\n";
}

}  // namespace

int completion_main(Words words) {
  std::string text;
  if (words.size() == 1 && words[0] == "bash") text = bash_script();
  if (words.size() == 1 && words[0] == "zsh") {
    text = "autoload -U +X bashcompinit && bashcompinit\n" + bash_script();
  }
  if (words.size() == 1 && words[0] == "fish") text = fish_script();
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    text =
        "Completion of divisi's commands, flags and jobs.\n"
        "Usage: divisi completion bash|zsh|fish\n\n"
        "Examples:\n  source <(divisi completion bash)\n"
        "  divisi completion fish > ~/.config/fish/completions/divisi.fish\n";
  }
  if (text.empty()) {
    return complain("divisi completion",
                    Status(Code::kInvalid, "say which shell: bash, zsh or fish"));
  }
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace divisi::run
