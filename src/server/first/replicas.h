// Replicas: the workers of a job by their URLs, as every answer of the v1alpha1 API has them.
#pragma once

#include "base/status.h"
#include "http/message.h"
#include "json/value.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::server::first {

using Urls = std::vector<std::string>;

struct Replicas {
  std::string space{};
  std::string coordinator{};
  std::optional<Urls> collectors{};  // absent: null in the answer
  std::optional<Urls> learners{};
};

json::Value to_json(const Replicas& replicas);

// An error with what was done before it.
http::Response failed(const Status& status, const Replicas& done = {});

// "<VERB> not implemented", 501.
http::Response not_implemented(std::string_view verb);

}  // namespace divisi::server::first
