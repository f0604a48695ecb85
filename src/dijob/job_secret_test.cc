// The key of the operator, and what is made of it.
#include "dijob/job_secret.h"

#include "dijob/names.h"
#include "kube/testing/fake_api.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace divisi::dijob {
namespace {

using namespace std::chrono_literals;
using kube::status_answer;

class SecretKeyTest : public ::testing::Test {
 protected:
  Result<std::string> load() {
    std::optional<Result<std::string>> key;
    SecretKey loader(client_, "di-system");
    loader.load([&](Result<std::string> found) { key = std::move(found); });
    EXPECT_TRUE(loop_.run_until([&] { return key.has_value(); }, 5min));
    return key ? *std::move(key) : failure(Code::kTimeout, "no key");
  }
  void answer(const std::string& method, int status, const std::string& reason, int times) {
    api_.intercept = [=, left = times](const http::Request& request) mutable {
      return request.method == method && left-- > 0
                 ? std::optional(status_answer(status, reason, "not now"))
                 : std::nullopt;
    };
  }

  kube::testing::SimLoop loop_;
  kube::testing::FakeApi api_{loop_, 1};
  kube::Client client_{loop_, api_};
};

TEST_F(SecretKeyTest, TheFirstOperatorMakesItAndTheNextOnesReadIt) {
  const auto first = load();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(load().value_or(""), *first);
  EXPECT_EQ(api_.store.all("/api/v1/secrets").size(), 1u);
}

TEST_F(SecretKeyTest, OneThatComesSecondTakesTheKeyOfTheFirst) {
  const auto first = load();
  answer("GET", 404, "NotFound", 1);
  EXPECT_EQ(load().value_or(""), *first);
}

TEST_F(SecretKeyTest, AServerThatIsAwayIsWaitedFor) {
  answer("GET", 500, "InternalError", 30);
  EXPECT_TRUE(load());
}

TEST_F(SecretKeyTest, AnAccountThatMayNotHasNone) {
  answer("GET", 403, "Forbidden", 1);
  const auto none = load();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kForbidden);
  answer("POST", 403, "Forbidden", 1);
  EXPECT_FALSE(load());
}

TEST(JobSecret, AHashIsOfOneSecretAndOneSalt) {
  const std::string secret = derive_secret("key", "uid-1");
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(derive_secret("key", "uid-1"), secret);
  EXPECT_NE(derive_secret("key", "uid-2"), secret);
  EXPECT_NE(derive_secret("kez", "uid-1"), secret);
  const std::string hash = hash_secret(secret, "uid-1");
  EXPECT_TRUE(has_hash(secret, hash));
  EXPECT_NE(hash_secret(secret, "uid-2").substr(6), hash.substr(6));
  EXPECT_FALSE(has_hash(derive_secret("key", "uid-2"), hash));
  EXPECT_FALSE(has_hash("", hash_secret("", "uid-1")));
}

}  // namespace
}  // namespace divisi::dijob
