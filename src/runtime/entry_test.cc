#include "runtime/entry.h"

#include "io/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

int plain() {
  return 3;
}
void nothing() {}
int with_argv(int argc, char** argv) {
  return argv[argc] == nullptr ? argc : -1;
}
int with_vector(std::vector<std::string> args) {
  return static_cast<int>(args.size());
}
void with_reference(const std::vector<std::string>& args) {
  if (args.empty()) throw std::runtime_error("no arguments");
}
int unregistered() {
  return 0;
}

DIVISI_MAIN(plain)
DIVISI_MAIN(nothing)
DIVISI_MAIN(with_argv)
DIVISI_MAIN(with_vector)
DIVISI_MAIN(with_reference)

namespace inner {
int scoped() {
  return 8;
}
DIVISI_MAIN(scoped)
}  // namespace inner
DIVISI_MAIN(inner::scoped)

}  // namespace

namespace divisi::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class Function>
Result<Entry> entry_of(Function* function) {
  return find_entry(reinterpret_cast<detail::AnyFunction>(function));
}

std::string package() {
  const std::string program = io::current_program();
  return program.substr(0, program.rfind('/')) + "/entry_test_package.so";
}

TEST(EntryTest, EveryShapeOfFunctionCanBeCalled) {
  EXPECT_EQ(entry_of(&plain)->call({}), 3);
  EXPECT_EQ(entry_of(&nothing)->call({"ignored"}), 0);
  EXPECT_EQ(entry_of(&with_argv)->call({"a", "b"}), 3);
  EXPECT_EQ(entry_of(&with_vector)->call({"a", "b"}), 2);
  EXPECT_EQ(entry_of(&with_reference)->call({"a"}), 0);
  EXPECT_THROW(entry_of(&with_reference)->call({}), std::runtime_error);
}

TEST(EntryTest, AnUnregisteredFunctionIsAnErrorThatNamesTheMacro) {
  const auto entry = entry_of(&unregistered);
  ASSERT_FALSE(entry.has_value());
  EXPECT_EQ(entry.error().code(), Code::kInvalid);
  EXPECT_THAT(entry.error().message(), HasSubstr("DIVISI_MAIN"));
}

TEST(EntryTest, AnotherProcessFindsTheSameFunctionByItsReference) {
  const EntryRef ref = entry_of(&plain)->ref;
  EXPECT_EQ(ref.library, "");
  EXPECT_EQ(ref.name, "plain");
  EXPECT_THAT(ref.where, HasSubstr("entry_test.cc:"));
  EXPECT_EQ(resolve_entry(ref)->call({}), 3);
}

TEST(EntryTest, FindsByNameWithAndWithoutScope) {
  EXPECT_EQ(find_entry("", "inner::scoped")->call({}), 8);
  EXPECT_EQ(find_entry("", "scoped")->call({}), 8);
}

TEST(EntryTest, AWrongNameGetsTheNearestOnes) {
  const auto entry = find_entry("", "plan");
  ASSERT_FALSE(entry.has_value());
  EXPECT_EQ(entry.error().code(), Code::kNotFound);
  EXPECT_THAT(entry.error().message(), AllOf(HasSubstr("'plan'"), HasSubstr("did you mean plain")));
  EXPECT_THAT(find_entry("", "zzzzzzzz").error().message(), HasSubstr("with_vector"));
}

TEST(EntryTest, NearestNamesAreSortedByDistance) {
  EXPECT_THAT(nearest_names("maim", {"mani", "evaluate", "main"}), ElementsAre("main", "mani"));
  EXPECT_THAT(nearest_names("main", {"a::main", "other"}), ElementsAre("a::main"));
  EXPECT_THAT(nearest_names("x", {}), IsEmpty());
}

TEST(EntryTest, APackageIsSearchedOnlyInItself) {
  ASSERT_TRUE(load_library(package()).ok()) << load_library(package()).message();
  EXPECT_EQ(find_entry(package(), "main")->call({}), 17);
  EXPECT_EQ(find_entry(package(), "collector")->call({"a"}), 1);
  EXPECT_EQ(find_entry(package(), "alias")->call({"a", "b"}), 2);
  EXPECT_THAT(entry_names(package()),
              ElementsAre("alias", "collector", "greeting::main", "outdated"));
  EXPECT_EQ(find_entry(package(), "plain").error().code(), Code::kNotFound);
  EXPECT_EQ(resolve_entry({package(), "main", "", false})->object, package());
}

TEST(EntryTest, AnotherAbiVersionIsRefusedWithBothVersions) {
  ASSERT_TRUE(load_library(package()).ok());
  const auto entry = find_entry(package(), "outdated");
  ASSERT_FALSE(entry.has_value());
  EXPECT_EQ(entry.error().code(), Code::kInvalid);
  EXPECT_THAT(entry.error().message(),
              AllOf(HasSubstr(fmt::format("ABI version {}", DIVISI_ABI_VERSION + 41)),
                    HasSubstr(fmt::format("has version {}", DIVISI_ABI_VERSION))));
}

TEST(EntryTest, AnExportedSymbolIsAnEntryToo) {
  const auto entry = resolve_entry({package(), "plain_symbol", "", true});
  ASSERT_TRUE(entry.has_value()) << entry.error().message();
  EXPECT_EQ(entry->call({"42"}), 42);
  const auto missing = resolve_entry({package(), "no_such_symbol", "", true});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("no_such_symbol"));
}

TEST(EntryTest, AMissingLibraryIsAnErrorWithItsPath) {
  const auto entry = resolve_entry({"/no/such/lib.so", "main", "", false});
  ASSERT_FALSE(entry.has_value());
  EXPECT_EQ(entry.error().code(), Code::kNotFound);
  EXPECT_THAT(entry.error().message(), HasSubstr("/no/such/lib.so"));
}

}  // namespace
}  // namespace divisi::runtime
