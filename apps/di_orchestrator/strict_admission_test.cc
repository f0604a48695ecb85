#include "strict_admission.h"

#include "kube/testing/fake_api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace divisi::apps {
namespace {

using namespace std::chrono_literals;

constexpr const char* kBindings =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
constexpr const char* kName = "dijobs.diengine.opendilab.org";

class StrictAdmissionTest : public ::testing::Test {
 protected:
  void put_binding(const std::string& action) {
    json::Value binding;
    binding["metadata"]["name"] = kName;
    binding["spec"]["validationActions"] = json::Array{json::Value(action)};
    api_.store.create(kBindings, kName, std::move(binding), "2026-01-01T00:00:00Z");
  }
  std::string action() const {
    return *api_.store.find(kBindings, kName)
                ->find_path({"spec", "validationActions"})
                ->as_array()
                ->at(0)
                .as_string();
  }
  void run_operator(bool strict) {
    StrictAdmission admission(loop_, api_, 1s, strict);
    admission.start();
    loop_.run_for(5s);
  }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi api_{loop_, 1};
};

TEST_F(StrictAdmissionTest, TheFlagSetsDenyAndAStartWithoutItTakesThatBack) {
  put_binding("Warn");
  run_operator(true);
  EXPECT_EQ(action(), "Deny");
  // As if the server were away when the next operator starts.
  api_.intercept = [left = 3](const http::Request&) mutable {
    return left-- > 0 ? std::optional(kube::status_answer(500, "InternalError", "away"))
                      : std::nullopt;
  };
  run_operator(false);
  EXPECT_EQ(action(), "Warn");
  const std::uint64_t before = api_.requests();
  run_operator(false);
  EXPECT_EQ(action(), "Warn");
  EXPECT_EQ(api_.requests() - before, 1u);
}

TEST_F(StrictAdmissionTest, WhatAnAdministratorHasSetStays) {
  put_binding("Deny");
  run_operator(false);
  EXPECT_EQ(action(), "Deny");
}

TEST_F(StrictAdmissionTest, WhatAnAdministratorSetsAfterwardsStaysToo) {
  put_binding("Warn");
  run_operator(true);
  run_operator(false);
  json::Value binding = *api_.store.find(kBindings, kName);
  binding["spec"]["validationActions"] = json::Array{json::Value("Deny")};
  api_.store.update(kBindings, kName, std::move(binding));
  run_operator(false);
  EXPECT_EQ(action(), "Deny");
}

TEST_F(StrictAdmissionTest, APolicyThatComesLaterBecomesStrictToo) {
  StrictAdmission admission(loop_, api_, 1s, true);
  admission.start();
  loop_.run_for(5s);
  put_binding("Warn");
  loop_.run_for(5s);
  EXPECT_EQ(action(), "Deny");
}

}  // namespace
}  // namespace divisi::apps
