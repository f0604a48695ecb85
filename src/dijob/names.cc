#include "dijob/names.h"

namespace divisi::dijob {

const kube::Resource& dijobs() {
  static const kube::Resource resource{
      std::string(kGroup), std::string(kVersion), "dijobs", "DIJob", true, {"dijob"}};
  return resource;
}

const kube::Resource& revisions() {
  static const kube::Resource resource{"apps", "v1", "controllerrevisions", "ControllerRevision",
                                       true,   {}};
  return resource;
}

}  // namespace divisi::dijob
