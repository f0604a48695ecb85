#include "json/strategic_schema.h"

#include <algorithm>
#include <array>

namespace divisi::json {
namespace {

using Strategy = FieldSchema::Strategy;

constexpr FieldSchema object(std::string_view name, const TypeSchema& type) {
  return {name, Strategy::kDefault, {}, &type};
}
constexpr FieldSchema list_by(std::string_view name, std::string_view merge_key,
                              const TypeSchema* element = nullptr) {
  return {name, Strategy::kMerge, merge_key, element};
}
constexpr FieldSchema set_of_scalars(std::string_view name) {
  return {name, Strategy::kMerge, {}, nullptr};
}
constexpr FieldSchema whole(std::string_view name) {
  return {name, Strategy::kReplace, {}, nullptr};
}

// Shared parts, from the inside out.

constexpr std::array kMetaFields = {set_of_scalars("finalizers"),
                                    list_by("ownerReferences", "uid")};
constexpr TypeSchema kMeta{kMetaFields};
constexpr FieldSchema kMetadata = object("metadata", kMeta);

constexpr std::array kConditionsFields = {list_by("conditions", "type")};
constexpr TypeSchema kConditions{kConditionsFields};
constexpr FieldSchema kStatus = object("status", kConditions);

constexpr std::array kContainerFields = {list_by("env", "name"), list_by("ports", "containerPort"),
                                         list_by("volumeMounts", "mountPath"),
                                         list_by("volumeDevices", "devicePath")};
constexpr TypeSchema kContainer{kContainerFields};

constexpr std::array kPodSpecFields = {list_by("containers", "name", &kContainer),
                                       list_by("initContainers", "name", &kContainer),
                                       list_by("ephemeralContainers", "name", &kContainer),
                                       list_by("volumes", "name"),
                                       list_by("imagePullSecrets", "name"),
                                       list_by("hostAliases", "ip"),
                                       list_by("resourceClaims", "name"),
                                       list_by("schedulingGates", "name"),
                                       list_by("topologySpreadConstraints", "topologyKey")};
constexpr TypeSchema kPodSpec{kPodSpecFields};

constexpr std::array kPodStatusFields = {list_by("conditions", "type"), list_by("podIPs", "ip"),
                                         list_by("hostIPs", "ip"),
                                         list_by("resourceClaimStatuses", "name")};
constexpr TypeSchema kPodStatus{kPodStatusFields};

constexpr std::array kPodTemplateFields = {kMetadata, object("spec", kPodSpec)};
constexpr TypeSchema kPodTemplateSpec{kPodTemplateFields};
constexpr FieldSchema kTemplate = object("template", kPodTemplateSpec);

constexpr std::array kWorkloadSpecFields = {kTemplate};
constexpr TypeSchema kWorkloadSpec{kWorkloadSpecFields};
constexpr std::array kJobTemplateFields = {kMetadata, object("spec", kWorkloadSpec)};
constexpr TypeSchema kJobTemplate{kJobTemplateFields};
constexpr std::array kCronJobSpecFields = {object("jobTemplate", kJobTemplate)};
constexpr TypeSchema kCronJobSpec{kCronJobSpecFields};

constexpr std::array kServiceSpecFields = {list_by("ports", "port")};
constexpr TypeSchema kServiceSpec{kServiceSpecFields};
constexpr std::array kNodeSpecFields = {set_of_scalars("podCIDRs")};
constexpr TypeSchema kNodeSpec{kNodeSpecFields};
constexpr std::array kNodeStatusFields = {list_by("conditions", "type"),
                                          list_by("addresses", "type")};
constexpr TypeSchema kNodeStatus{kNodeStatusFields};
constexpr std::array kBudgetSpecFields = {whole("selector")};
constexpr TypeSchema kBudgetSpec{kBudgetSpecFields};
constexpr std::array kCsiNodeSpecFields = {list_by("drivers", "name")};
constexpr TypeSchema kCsiNodeSpec{kCsiNodeSpecFields};
constexpr std::array kWebhookFields = {list_by("matchConditions", "name")};
constexpr TypeSchema kWebhook{kWebhookFields};

// Whole objects.

constexpr std::array kPlainFields = {kMetadata};
constexpr TypeSchema kPlain{kPlainFields};
constexpr std::array kWithConditionsFields = {kMetadata, kStatus};
constexpr TypeSchema kWithConditions{kWithConditionsFields};
constexpr std::array kPodFields = {kMetadata, object("spec", kPodSpec),
                                   object("status", kPodStatus)};
constexpr TypeSchema kPod{kPodFields};
constexpr std::array kPodTemplateObjectFields = {kMetadata, kTemplate};
constexpr TypeSchema kPodTemplate{kPodTemplateObjectFields};
constexpr std::array kWorkloadFields = {kMetadata, object("spec", kWorkloadSpec), kStatus};
constexpr TypeSchema kWorkload{kWorkloadFields};
constexpr std::array kCronJobFields = {kMetadata, object("spec", kCronJobSpec)};
constexpr TypeSchema kCronJob{kCronJobFields};
constexpr std::array kServiceFields = {kMetadata, object("spec", kServiceSpec), kStatus};
constexpr TypeSchema kService{kServiceFields};
constexpr std::array kServiceAccountFields = {kMetadata, list_by("secrets", "name")};
constexpr TypeSchema kServiceAccount{kServiceAccountFields};
constexpr std::array kNodeFields = {kMetadata, object("spec", kNodeSpec),
                                    object("status", kNodeStatus)};
constexpr TypeSchema kNode{kNodeFields};
constexpr std::array kBudgetFields = {kMetadata, object("spec", kBudgetSpec), kStatus};
constexpr TypeSchema kBudget{kBudgetFields};
constexpr std::array kCsiNodeFields = {kMetadata, object("spec", kCsiNodeSpec)};
constexpr TypeSchema kCsiNode{kCsiNodeFields};
constexpr std::array kWebhooksFields = {kMetadata, list_by("webhooks", "name", &kWebhook)};
constexpr TypeSchema kWebhooks{kWebhooksFields};

struct KnownType {
  std::string_view api_version;
  std::string_view kind;
  const TypeSchema* schema;
};

constexpr std::string_view kAdmission = "admissionregistration.k8s.io/v1";
constexpr std::string_view kRbac = "rbac.authorization.k8s.io/v1";
constexpr std::string_view kStorage = "storage.k8s.io/v1";
constexpr std::string_view kNetworking = "networking.k8s.io/v1";

constexpr auto kKnownTypes = std::to_array<KnownType>({
    {"v1", "Pod", &kPod},
    {"v1", "PodTemplate", &kPodTemplate},
    {"v1", "ReplicationController", &kWorkload},
    {"v1", "Service", &kService},
    {"v1", "ServiceAccount", &kServiceAccount},
    {"v1", "Node", &kNode},
    {"v1", "Namespace", &kWithConditions},
    {"v1", "PersistentVolumeClaim", &kWithConditions},
    {"v1", "PersistentVolume", &kPlain},
    {"v1", "ConfigMap", &kPlain},
    {"v1", "Secret", &kPlain},
    {"v1", "Event", &kPlain},
    {"v1", "Endpoints", &kPlain},
    {"v1", "LimitRange", &kPlain},
    {"v1", "ResourceQuota", &kPlain},
    {"apps/v1", "Deployment", &kWorkload},
    {"apps/v1", "ReplicaSet", &kWorkload},
    {"apps/v1", "StatefulSet", &kWorkload},
    {"apps/v1", "DaemonSet", &kWorkload},
    {"apps/v1", "ControllerRevision", &kPlain},
    {"batch/v1", "Job", &kWorkload},
    {"batch/v1", "CronJob", &kCronJob},
    {"autoscaling/v1", "HorizontalPodAutoscaler", &kPlain},
    {"autoscaling/v2", "HorizontalPodAutoscaler", &kWithConditions},
    {"policy/v1", "PodDisruptionBudget", &kBudget},
    {"events.k8s.io/v1", "Event", &kPlain},
    {"coordination.k8s.io/v1", "Lease", &kPlain},
    {"discovery.k8s.io/v1", "EndpointSlice", &kPlain},
    {"node.k8s.io/v1", "RuntimeClass", &kPlain},
    {"scheduling.k8s.io/v1", "PriorityClass", &kPlain},
    {kNetworking, "Ingress", &kPlain},
    {kNetworking, "IngressClass", &kPlain},
    {kNetworking, "NetworkPolicy", &kPlain},
    {kRbac, "Role", &kPlain},
    {kRbac, "RoleBinding", &kPlain},
    {kRbac, "ClusterRole", &kPlain},
    {kRbac, "ClusterRoleBinding", &kPlain},
    {kStorage, "StorageClass", &kPlain},
    {kStorage, "VolumeAttachment", &kPlain},
    {kStorage, "CSIDriver", &kPlain},
    {kStorage, "CSINode", &kCsiNode},
    {kAdmission, "MutatingWebhookConfiguration", &kWebhooks},
    {kAdmission, "ValidatingWebhookConfiguration", &kWebhooks},
});

}  // namespace

const TypeSchema* find_schema(ObjectType type) noexcept {
  const auto* found = std::ranges::find_if(kKnownTypes, [&](const auto& known) {
    return known.api_version == type.api_version && known.kind == type.kind;
  });
  return found == kKnownTypes.end() ? nullptr : found->schema;
}

const FieldSchema& find_field(const TypeSchema* type, std::string_view name) noexcept {
  static constexpr FieldSchema kUnlisted{};
  if (type == nullptr) return kUnlisted;
  const auto found = std::ranges::find_if(
      type->fields, [&](const FieldSchema& field) { return field.name == name; });
  return found == type->fields.end() ? kUnlisted : *found;
}

}  // namespace divisi::json
