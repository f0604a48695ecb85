// informer_probe NAMESPACE: follows the ConfigMaps there and says "+name", "~name" and "-name" of
// each change; its watches last a second or two, so that credentials are asked for again and again.

#include "kube/informer.h"
#include "kube/session.h"

#include <cstdio>
#include <unistd.h>

namespace {

void say(char what, const divisi::kube::ObjectPtr& object) {
  std::printf("%c%s\n", what, divisi::kube::split_key(object->key()).name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: informer_probe NAMESPACE\n");
    return 2;
  }
  auto session = divisi::kube::Session::open({});
  if (!session) {
    std::fprintf(stderr, "informer_probe: %s\n", session.error().message().c_str());
    return 1;
  }
  std::unique_ptr<divisi::kube::Informer> informer;
  (*session)->reactor().run_on_loop([&] {
    divisi::kube::InformerOptions options;
    options.reflector.resource = divisi::kube::resources::config_maps();
    options.reflector.space = argv[1];
    options.reflector.watch_for = std::chrono::seconds(1);
    informer = std::make_unique<divisi::kube::Informer>((*session)->client(), std::move(options));
    informer->add_handler({.on_added = [](const auto& now) { say('+', now); },
                           .on_changed = [](const auto&, const auto& now) { say('~', now); },
                           .on_deleted = [](const auto& last, bool) { say('-', last); }});
    informer->start();
  });
  for (;;) ::pause();
}
