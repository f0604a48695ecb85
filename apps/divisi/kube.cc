// divisi kube: a thin tool over the Kubernetes client library, for tests and for people who debug
// it.

#include "commands.h"
#include "json/yaml.h"
#include "kube/session.h"
#include "kube/streams.h"
#include "kube/watch.h"
#include "kube_exec.h"
#include "kube_print.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divisi::apps {
namespace {

constexpr std::string_view kFieldManager = "divisi-kube";

struct Options {
  kube::ConfigOptions config;
  bool all_spaces = false;
  std::string output;
  std::string resource;
  std::string name;
  std::string labels;
  std::string fields;
  std::vector<std::string> files;
  kube::LogOptions log;
  kube::ExecOptions exec;
  std::int64_t grace = -1;
  std::int64_t events = 0;
  bool force = false;
};

// Exit codes as everywhere in Divisi: 2 for a mistake of the user, 1 for what went wrong.
int complain(const Status& status) {
  std::fprintf(stderr, "divisi: %s\n", status.message().c_str());
  return status.code() == Code::kInvalid ? 2 : 1;
}

std::string space_of(const Options& options, const kube::Session& session) {
  return options.all_spaces ? std::string() : session.config().default_namespace;
}

Status get(const Options& options, kube::Session& session) {
  auto resource = session.find(options.resource);
  if (!resource) return resource.error();
  const bool table = options.output.empty() || options.output == "wide";
  const kube::Query query{{"labelSelector", options.labels}, {"fieldSelector", options.fields}};
  const std::string target =
      resource->path(space_of(options, session), options.name) + kube::query_text(query);
  auto answer = session.get_path(target, table ? std::string(kTableType) : std::string());
  if (!answer) return answer.error();
  if (table) {
    print(
        print_table(*answer, options.output == "wide", options.all_spaces && resource->namespaced));
    return {};
  }
  auto text = print_objects(*answer, options.output);
  if (!text) return text.error();
  print(*text);
  return {};
}

const char* event_name(kube::WatchEvent::Type type) {
  using Type = kube::WatchEvent::Type;
  switch (type) {
    case Type::kAdded: return "ADDED";
    case Type::kModified: return "MODIFIED";
    case Type::kDeleted: return "DELETED";
    case Type::kBookmark: return "BOOKMARK";
    case Type::kError: return "ERROR";
  }
  return "";
}

// Until the server ends it, or so many events were told.
Status watch(const Options& options, kube::Session& session) {
  auto resource = session.find(options.resource);
  if (!resource) return resource.error();
  std::string fields = options.fields;
  if (!options.name.empty()) {
    fields += (fields.empty() ? "" : ",") + std::string("metadata.name=") + options.name;
  }
  const kube::Query query{{"watch", "true"},
                          {"labelSelector", options.labels},
                          {"fieldSelector", fields},
                          {"allowWatchBookmarks", "true"}};
  const std::string target = resource->path(space_of(options, session)) + kube::query_text(query);
  kube::WatchDecoder decoder;
  std::unique_ptr<http::Call> call;
  std::int64_t told = 0;
  Status trouble;
  const auto outcome = kube::wait_for<bool>(session.reactor(), [&](auto done) {
    auto finish = std::make_shared<decltype(done)>(std::move(done));
    const auto end = [finish](Result<bool> result) {
      if (const auto once = std::exchange(*finish, nullptr)) once(std::move(result));
    };
    http::CallOptions stream;
    stream.deadline = io::Duration(0);
    call = session.client().stream(
        "watching " + resource->plural, target, stream,
        [&, end](std::string_view piece) {
          const Status status = decoder.feed(piece, [&](const kube::WatchEvent& event) {
            if (event.type == kube::WatchEvent::Type::kError) {
              trouble = kube::status_of_object("watching " + resource->plural, event.object);
              return false;
            }
            if (event.type == kube::WatchEvent::Type::kBookmark && options.output != "json")
              return true;
            if (options.output == "json") {
              json::Value line;
              line["type"] = event_name(event.type);
              line["object"] = event.object;
              print(json::print(line) + "\n");
            } else {
              print(fmt::format("{:<9} {}\n", event_name(event.type),
                                kube::object_key(event.object.string_at({"metadata", "namespace"}),
                                                 event.object.string_at({"metadata", "name"}))));
            }
            return ++told != options.events;
          });
          if (!status.ok()) return end(failure(status));
          if (!trouble.ok()) return end(failure(trouble));
          if (told == options.events && told > 0) end(true);
        },
        [end](const Status& status) {
          if (status.ok()) return end(true);
          end(failure(status));
        });
  });
  session.reactor().run_on_loop([&] { call.reset(); });
  return outcome ? Status() : outcome.error();
}

Result<std::string> read_input(const std::string& file) {
  std::string text;
  if (file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    return text;
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return failure(Code::kInvalid, "{}: cannot be read: {}", file, errno_text(errno));
  text.assign(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad())
    return failure(Code::kInvalid, "{}: cannot be read: {}", file, errno_text(errno));
  return text;
}

// The objects of a file; those of a List one by one.
Result<std::vector<json::Value>> objects_of(const std::string& file) {
  DIVISI_TRY(const std::string text, read_input(file));
  auto documents = json::parse_yaml(text);
  if (!documents) return failure(documents.error().with_context(file));
  std::vector<json::Value> objects;
  for (json::Value& document : *documents) {
    json::Value* items = document.find("items");
    if (document.string_at({"kind"}).ends_with("List") && items != nullptr && items->as_array()) {
      for (json::Value& item : *items->as_array()) objects.push_back(std::move(item));
    } else {
      objects.push_back(std::move(document));
    }
  }
  for (const json::Value& object : objects) {
    if (object.string_at({"apiVersion"}).empty() || object.string_at({"kind"}).empty() ||
        object.string_at({"metadata", "name"}).empty()) {
      return failure(Code::kInvalid, "{}: an object needs apiVersion, kind and metadata.name",
                     file);
    }
  }
  return objects;
}

struct Place {
  kube::Resource resource;
  std::string space;
  std::string name;
};

Result<Place> place_of(const json::Value& object, kube::Session& session) {
  Place place;
  DIVISI_TRY(place.resource, session.find_kind(std::string(object.string_at({"apiVersion"})),
                                               std::string(object.string_at({"kind"}))));
  place.name = object.string_at({"metadata", "name"});
  place.space = object.string_at({"metadata", "namespace"});
  if (place.space.empty() && place.resource.namespaced)
    place.space = session.config().default_namespace;
  return place;
}

// Does it to every object of the files, until one fails.
Status for_each(const Options& options, kube::Session& session,
                const std::function<Status(const json::Value&, const Place&)>& act) {
  for (const std::string& file : options.files) {
    auto objects = objects_of(file);
    if (!objects) return objects.error();
    for (const json::Value& object : *objects) {
      auto place = place_of(object, session);
      if (!place) return place.error();
      if (Status status = act(object, *place); !status.ok()) return status;
    }
  }
  return {};
}

// Server-side apply: what the file says is ours, the rest is left to others.
Status apply(const Options& options, kube::Session& session) {
  const kube::WriteOptions how{.field_manager = std::string(kFieldManager), .force = options.force};
  return for_each(options, session, [&](const json::Value& object, const Place& place) -> Status {
    const auto answer = session.call([&](kube::Done done) {
      session.client().patch(place.resource, place.space, place.name, kube::PatchType::kApply,
                             object, how, std::move(done));
    });
    if (!answer) return answer.error();
    print(place.resource.plural + "/" + place.name + " applied\n");
    return {};
  });
}

Status remove_one(const Options& options, kube::Session& session, const Place& place) {
  kube::DeleteOptions how;
  if (options.grace >= 0) how.grace_seconds = options.grace;
  const auto answer = session.call([&](kube::Done done) {
    session.client().remove(place.resource, place.space, place.name, how, std::move(done));
  });
  if (!answer) return answer.error();
  print(place.resource.plural + "/" + place.name + " deleted\n");
  return {};
}

Status remove(const Options& options, kube::Session& session) {
  if (!options.files.empty()) {
    return for_each(options, session, [&](const json::Value&, const Place& place) {
      return remove_one(options, session, place);
    });
  }
  if (options.resource.empty() || options.name.empty()) {
    return make_status(Code::kInvalid, "delete needs a resource and a name, or -f FILE");
  }
  auto resource = session.find(options.resource);
  if (!resource) return resource.error();
  return remove_one(
      options, session,
      {*resource, resource->namespaced ? session.config().default_namespace : "", options.name});
}

Status logs(const Options& options, kube::Session& session) {
  std::unique_ptr<http::Call> call;
  const auto outcome = kube::wait_for<bool>(session.reactor(), [&](auto done) {
    call = kube::read_log(session.client(), session.config().default_namespace, options.name,
                          options.log, print, [done = std::move(done)](const Status& status) {
                            if (status.ok()) return done(true);
                            done(failure(status));
                          });
  });
  session.reactor().run_on_loop([&] { call.reset(); });
  return outcome ? Status() : outcome.error();
}

Result<int> exec(const Options& options, kube::Session& session) {
  return exec_in_pod(session, options.name, options.exec);
}

template <class Run>
void on_chosen(CLI::App& command, const Options& options, int& code, Run run) {
  command.callback([&options, &code, run] {
    auto session = kube::Session::open(options.config);
    if (!session) {
      code = complain(session.error());
      return;
    }
    const Result<int> outcome = run(options, **session);
    code = outcome ? *outcome : complain(outcome.error());
  });
}

template <class Run>
auto without_code(Run run) {
  return [run](const Options& options, kube::Session& session) -> Result<int> {
    if (Status status = run(options, session); !status.ok()) return failure(std::move(status));
    return 0;
  };
}

void add_selectors(CLI::App& command, Options& options) {
  command.add_option("resource", options.resource, "pods, po, jobs.batch, ...")->required();
  command.add_option("name", options.name, "only this one");
  command.add_option("-l,--selector", options.labels, "by labels: app=rl,role in (learner)");
  command.add_option("--field-selector", options.fields, "by fields: status.phase=Running");
  command.add_flag("-A,--all-namespaces", options.all_spaces, "of all name spaces");
}

}  // namespace

void add_kube_command(CLI::App& app, int& code) {
  // Lives as long as the program: the callbacks of the commands refer to it.
  static Options options;
  CLI::App& kube =
      *app.add_subcommand("kube", "Talk to a Kubernetes cluster, to see what Divisi sees of it");
  kube.require_subcommand(1);
  kube.footer(
      "examples:\n"
      "  divisi kube get pods -A\n"
      "  divisi kube get dijob my-job -o yaml\n"
      "  divisi kube watch pods -l app=rl\n"
      "  divisi kube apply -f job.yaml\n"
      "  divisi kube logs my-job-learner-0 --follow\n"
      "  divisi kube exec my-job-learner-0 -- ls /ding\n");
  kube.add_option("--kubeconfig", options.config.kubeconfig, "this file instead of the usual ones");
  kube.add_option("--context", options.config.context, "a context of it");
  kube.add_option("-n,--namespace", options.config.default_namespace, "a name space");
  kube.fallthrough();

  for (const char* name : {"get", "list"}) {
    CLI::App& command = *kube.add_subcommand(name, "Show objects: as a table, or as -o says");
    add_selectors(command, options);
    command.add_option("-o,--output", options.output, "wide, yaml, json or name");
    on_chosen(command, options, code, without_code(get));
  }
  CLI::App& watching = *kube.add_subcommand("watch", "Tell of every change");
  add_selectors(watching, options);
  watching.add_option("-o,--output", options.output, "json: the events as they come");
  watching.add_option("--events", options.events, "end after so many");
  on_chosen(watching, options, code, without_code(watch));

  CLI::App& applying =
      *kube.add_subcommand("apply", "Make the cluster have what files say (server-side)");
  applying.add_option("-f,--filename", options.files, "YAML or JSON; - is standard input")
      ->required();
  applying.add_flag("--force", options.force, "take over fields that others own");
  on_chosen(applying, options, code, without_code(apply));

  CLI::App& deleting = *kube.add_subcommand("delete", "Delete an object, or those of files");
  deleting.add_option("resource", options.resource, "pods, po, jobs.batch, ...");
  deleting.add_option("name", options.name, "which one");
  deleting.add_option("-f,--filename", options.files, "YAML or JSON; - is standard input");
  deleting.add_option("--grace-period", options.grace, "seconds to end by itself; 0: at once");
  on_chosen(deleting, options, code, without_code(remove));

  CLI::App& logging = *kube.add_subcommand("logs", "What a pod has printed");
  logging.add_option("pod", options.name)->required();
  logging.add_option("-c,--container", options.log.container, "which of several");
  logging.add_flag("-f,--follow", options.log.follow, "and what it will print");
  logging.add_flag("-p,--previous", options.log.previous, "of the container before its restart");
  logging.add_flag("--timestamps", options.log.timestamps, "with the time of each line");
  logging.add_option("--tail", options.log.tail_lines, "only so many lines from the end");
  on_chosen(logging, options, code, without_code(logs));

  CLI::App& executing = *kube.add_subcommand("exec", "Run a command in a container of a pod");
  executing.add_option("pod", options.name)->required();
  executing.add_option("command", options.exec.command, "behind --")->required();
  executing.add_option("-c,--container", options.exec.container, "which of several");
  executing.add_flag("-i,--stdin", options.exec.input, "give it our standard input");
  on_chosen(executing, options, code, exec);
}

}  // namespace divisi::apps
