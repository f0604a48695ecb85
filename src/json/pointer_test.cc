#include "json/pointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

TEST(PointerTest, FindsTheExamplesOfRfc6901) {
  const Value document = *parse(R"({"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,)"
                                R"("i\\j":5,"k\"l":6," ":7,"m~n":8})");
  const auto at = [&](std::string_view text) {
    const auto pointer = Pointer::parse(text);
    const Value* found = pointer ? pointer->find(document) : nullptr;
    EXPECT_EQ(pointer->to_string(), text);
    return found == nullptr ? "nothing" : print(*found);
  };
  EXPECT_EQ(at(""), print(document));
  EXPECT_EQ(at("/foo"), R"(["bar","baz"])");
  EXPECT_EQ(at("/foo/0"), R"("bar")");
  EXPECT_EQ(at("/"), "0");
  EXPECT_EQ(at("/a~1b"), "1");
  EXPECT_EQ(at("/c%d"), "2");
  EXPECT_EQ(at("/e^f"), "3");
  EXPECT_EQ(at("/g|h"), "4");
  EXPECT_EQ(at("/i\\j"), "5");
  EXPECT_EQ(at("/k\"l"), "6");
  EXPECT_EQ(at("/ "), "7");
  EXPECT_EQ(at("/m~0n"), "8");
  EXPECT_EQ(at("/foo/2"), "nothing");
  EXPECT_EQ(at("/foo/-"), "nothing");
  EXPECT_EQ(at("/foo/00"), "nothing");
  EXPECT_EQ(at("/foo/99999999999999999999"), "nothing");
  EXPECT_EQ(at("/foo/0/x"), "nothing");
}

TEST(PointerTest, RefusesWhatIsNoPointer) {
  EXPECT_THAT(Pointer::parse("foo").error().message(), HasSubstr("starts with /"));
  EXPECT_THAT(Pointer::parse("/a~2").error().message(), HasSubstr("after ~ comes 0 or 1"));
  EXPECT_THAT(Pointer::parse("/a~").error().message(), HasSubstr("after ~ comes 0 or 1"));
}

TEST(PointerTest, UnescapesATildeOnlyOnce) {
  EXPECT_EQ(Pointer::parse("/~01")->tokens().front(), "~1");
  EXPECT_EQ(escape_token("~1/"), "~01~1");
}

TEST(PointerTest, KnowsWhatIsInside) {
  const Pointer outer({"a", "b"});
  EXPECT_TRUE(outer.contains(Pointer({"a", "b", "c"})));
  EXPECT_TRUE(outer.contains(outer));
  EXPECT_FALSE(outer.contains(Pointer({"a"})));
  EXPECT_FALSE(outer.contains(Pointer({"a", "bc"})));
  EXPECT_EQ(outer.parent(), Pointer({"a"}));
}

}  // namespace
}  // namespace divisi::json
