#include "json/patch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divisi::json {
namespace {

using ::testing::HasSubstr;

Value json(std::string_view text) {
  auto value = parse(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value ? *std::move(value) : Value();
}

// The patched document, or the message; then also that the document is as it was.
std::string patched(std::string_view document, std::string_view patch) {
  Value target = json(document);
  const Status status = apply_json_patch(target, json(patch));
  if (status.ok()) return print(target);
  EXPECT_EQ(target, json(document)) << patch;
  return status.message();
}

struct Case {
  std::string_view document;
  std::string_view patch;
  std::string_view result;
};

TEST(JsonPatchTest, GivesTheResultsOfRfc6902) {
  const Case cases[] = {
      {R"({"foo":"bar"})", R"([{"op":"add","path":"/baz","value":"qux"}])",
       R"({"foo":"bar","baz":"qux"})"},
      {R"({"foo":["bar","baz"]})", R"([{"op":"add","path":"/foo/1","value":"qux"}])",
       R"({"foo":["bar","qux","baz"]})"},
      {R"({"baz":"qux","foo":"bar"})", R"([{"op":"remove","path":"/baz"}])", R"({"foo":"bar"})"},
      {R"({"foo":["bar","qux","baz"]})", R"([{"op":"remove","path":"/foo/1"}])",
       R"({"foo":["bar","baz"]})"},
      {R"({"baz":"qux","foo":"bar"})", R"([{"op":"replace","path":"/baz","value":"boo"}])",
       R"({"baz":"boo","foo":"bar"})"},
      {R"({"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}})",
       R"([{"op":"move","from":"/foo/waldo","path":"/qux/thud"}])",
       R"({"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}})"},
      {R"({"foo":["all","grass","cows","eat"]})",
       R"([{"op":"move","from":"/foo/1","path":"/foo/3"}])",
       R"({"foo":["all","cows","eat","grass"]})"},
      {R"({"baz":"qux","foo":["a",2,"c"]})",
       R"([{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}])",
       R"({"baz":"qux","foo":["a",2,"c"]})"},
      {R"({"foo":"bar"})", R"([{"op":"add","path":"/child","value":{"grandchild":{}}}])",
       R"({"foo":"bar","child":{"grandchild":{}}})"},
      {R"({"foo":"bar"})", R"([{"op":"add","path":"/baz","value":"qux","xyz":123}])",
       R"({"foo":"bar","baz":"qux"})"},
      {R"({"/":9,"~1":10})", R"([{"op":"test","path":"/~01","value":10}])", R"({"/":9,"~1":10})"},
      {R"({"foo":["bar"]})", R"([{"op":"add","path":"/foo/-","value":["abc","def"]}])",
       R"({"foo":["bar",["abc","def"]]})"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(patched(each.document, each.patch), each.result) << each.patch;
  }
}

TEST(JsonPatchTest, RefusesWhatRfc6902Refuses) {
  const Case cases[] = {
      {R"({"baz":"qux"})", R"([{"op":"test","path":"/baz","value":"bar"}])", "not the expected"},
      {R"({"foo":"bar"})", R"([{"op":"add","path":"/baz/bat","value":"qux"}])",
       "operation 1 of the JSON patch (add): there is nothing at \"/baz\""},
      {R"({"/":9,"~1":10})", R"([{"op":"test","path":"/~01","value":"10"}])", "not the expected"},
      {"{}", R"([{"op":"remove","path":"/a"}])", "there is nothing at \"/a\""},
      {"{}", R"([{"op":"replace","path":"/a","value":1}])", "there is nothing at \"/a\""},
      {R"({"a":{"b":1}})", R"([{"op":"move","from":"/a","path":"/a/b"}])", "into its own child"},
      {R"({"a":[1]})", R"([{"op":"add","path":"/a/2","value":1}])", "no place in an array of 1"},
      {R"({"a":[1]})", R"([{"op":"add","path":"/a/01","value":1}])", "no place in an array"},
      {"{}", R"([{"op":"add","path":"/a"}])", "it has no value"},
      {"{}", R"([{"op":"copy","path":"/a"}])", "its from is no text"},
      {"{}", R"([{"op":"spam","path":"/a"}])", "\"spam\" is not add, remove"},
      {"{}", R"([{"op":"add","path":7,"value":1}])", "its path is no text"},
      {"{}", R"([{"op":"remove","path":""}])", "whole document"},
      {"{}", R"([1])", "its path is no text"},
      {"{}", R"({"op":"add"})", "is an array, not object"},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(patched(each.document, each.patch), HasSubstr(std::string(each.result)))
        << each.patch;
  }
}

TEST(JsonPatchTest, LeavesTheTargetAloneWhenALaterOperationFails) {
  Value target = json(R"({"a":[1,2]})");
  const Status status = apply_json_patch(
      target, json(R"([{"op":"remove","path":"/a/0"},{"op":"test","path":"/a/0","value":1}])"));
  EXPECT_EQ(status.code(), Code::kConflict);
  EXPECT_EQ(print(target), R"({"a":[1,2]})");
}

TEST(JsonPatchTest, ComparesByMeaningAndReplacesTheWholeDocument) {
  EXPECT_EQ(patched(R"({"a":{"x":1,"y":[1.0]}})",
                    R"([{"op":"test","path":"","value":{"a":{"y":[1],"x":1.0}}},)"
                    R"({"op":"replace","path":"","value":7}])"),
            "7");
  EXPECT_EQ(patched(R"({"a":1})", R"([{"op":"move","from":"/a","path":"/a"}])"), R"({"a":1})");
  EXPECT_EQ(patched(R"({"a":[1]})", R"([{"op":"copy","from":"","path":"/b"}])"),
            R"({"a":[1],"b":{"a":[1]}})");
}

TEST(JsonPatchTest, BoundsWhatAPatchCanGrow) {
  std::string doubling = "[";
  for (int i = 0; i < 40; ++i) {
    doubling += fmt::format(R"({}{{"op":"copy","from":"","path":"/{}"}})", i == 0 ? "" : ",", i);
  }
  EXPECT_THAT(patched(R"({"a":"xxxxxxxxxxxxxxxx"})", doubling + "]"),
              HasSubstr("copies of more than 3145728 bytes"));

  for (const char* op : {"add", "replace"}) {
    std::string path = "/a";
    std::string deep = "[";
    for (int i = 0; i < 100; ++i) {
      deep += fmt::format(R"({}{{"op":"{}","path":"{}","value":{{"a":{{}}}}}})", i == 0 ? "" : ",",
                          op, path);
      path += "/a";
    }
    EXPECT_THAT(patched(R"({"a":{}})", deep + "]"), HasSubstr("nest deeper than 64 levels")) << op;
  }

  const Value many(Array(10001, json(R"({"op":"add","path":"/a","value":1})")));
  Value target{Object{}};
  EXPECT_THAT(apply_json_patch(target, many).message(), HasSubstr("at most 10000"));
}

TEST(MergePatchTest, GivesTheResultsOfRfc7396) {
  const Case cases[] = {
      {R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
      {R"({"a":"b"})", R"({"a":null})", R"({})"},
      {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
      {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
      {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
      {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
      {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
      {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
      {R"({"a":"foo"})", "null", "null"},
      {R"({"a":"foo"})", R"("bar")", R"("bar")"},
      {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
      {R"([1,2])", R"({"a":"b","c":null})", R"({"a":"b"})"},
      {R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
  };
  for (const Case& each : cases) {
    Value target = json(each.document);
    apply_merge_patch(target, json(each.patch));
    EXPECT_EQ(print(target), each.result) << each.patch;
  }
}

TEST(MergePatchTest, MakesThePatchBetweenTwoDocuments) {
  const Case cases[] = {
      {R"({"a":1,"b":{"c":1,"d":2},"e":[1]})", R"({"b":{"d":3,"f":4},"e":[1,2]})",
       R"({"a":null,"b":{"c":null,"d":3,"f":4},"e":[1,2]})"},
      {R"({"a":{"x":1,"y":2}})", R"({"a":{"y":2.0,"x":1}})", "{}"},
      {R"({"a":{"x":1}})", R"({"a":1})", R"({"a":1})"},
      {R"([1])", R"({"a":1})", R"({"a":1})"},
  };
  for (const Case& each : cases) {
    const Value patch = make_merge_patch(json(each.document), json(each.patch));
    EXPECT_EQ(print(patch), each.result);
    Value target = json(each.document);
    apply_merge_patch(target, patch);
    EXPECT_TRUE(equivalent(target, json(each.patch)));
  }
}

TEST(MergePatchTest, MakesOperationsThatKeepNullsInLists) {
  const Case cases[] = {
      {R"({"a":1,"b":{"c":1}})", R"({"a":null,"b":{"c":2,"d/e":3},"x":null})",
       R"({"b":{"c":2,"d/e":3}})"},
      {R"({"a":{"b":1}})", R"({"a":[{"b":null}]})", R"({"a":[{"b":null}]})"},
      {R"({})", R"({"a":{"b":null,"c":1}})", R"({"a":{"c":1}})"},
      {R"({"a":1})", "{}", R"({"a":1})"},
  };
  for (const Case& each : cases) {
    Value target = json(each.document);
    const Value operations = as_json_patch(target, json(each.patch));
    ASSERT_TRUE(apply_json_patch(target, operations).ok()) << print(operations);
    EXPECT_EQ(print(target), each.result) << print(operations);
  }
}

TEST(MergePatchTest, HandlesObjectsOfManyKeys) {
  Object members;
  Object changes;
  for (int i = 0; i < 100000; ++i) {
    members.emplace_back(std::to_string(i), i);
    changes.emplace_back(std::to_string(i), i % 2 == 0 ? Value() : Value(-i));
  }
  Value target(std::move(members));
  apply_merge_patch(target, Value(std::move(changes)));
  EXPECT_EQ(target.as_object()->size(), 50000U);
  EXPECT_EQ(target.int_at({"99999"}), -99999);
  EXPECT_EQ(target.as_object()->front().first, "1");
}

}  // namespace
}  // namespace divisi::json
