// N9: a package and the program that loads it see one router.
#include "divisi/parallel.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

namespace divisi {
namespace {

TEST(SingletonTest, APackageSeesTheRouterOfItsProgram) {
  void* const package = ::dlopen(DIVISI_TEST_PACKAGES "/singleton.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(package, nullptr) << ::dlerror();
  const auto address =
      reinterpret_cast<const void* (*)()>(::dlsym(package, "divisi_test_router_address"));
  ASSERT_NE(address, nullptr) << ::dlerror();
  EXPECT_EQ(address(), static_cast<const void*>(&Parallel::instance()));
}

}  // namespace
}  // namespace divisi
