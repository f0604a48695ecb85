// The folder of one pod: its volumes, its home and its /tmp.
//
//   FOLDER/volumes/NAME  FOLDER/home  FOLDER/tmp  FOLDER/hosts
#pragma once

#include "base/status.h"
#include "local/pod_plan.h"
#include "local/sandbox.h"

#include <string>
#include <vector>

namespace divisi::local {

// Where a pod finds its own home.
inline constexpr const char* kHome = "/var/lib/divisi/home";

// Makes the folders and writes the files of configMap and secret volumes; again after a restart.
Status fill_pod_folder(const std::string& folder, const PodPlan& plan);
void remove_pod_folder(const std::string& folder, const PodPlan& plan);

// What a container of the pod sees besides this machine's own files. `hosts`: its /etc/hosts.
std::vector<Bind> binds_of(const std::string& folder, const PodPlan& plan,
                           const ContainerPlan& container, const std::string& hosts);

}  // namespace divisi::local
