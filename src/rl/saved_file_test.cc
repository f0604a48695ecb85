#include "rl/saved_file.h"

#include "divisi/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

namespace divisi::rl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "saved_file_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

using Weights = std::map<std::string, Tensor>;

// Small tensors travel in the body, those of 8 KiB and more beside it.
Weights some_weights() {
  return {{"small", Tensor::copy_of<float>({3}, std::vector<float>{1, 2, 3})},
          {"large", Tensor::copy_of<float>({5000}, std::vector<float>(5000, 0.5F))}};
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

auto load(const std::string& path) {
  return load_file<std::string, Weights>(path, "test");
}

TEST(SavedFileTest, What_was_saved_is_loaded) {
  const Folder folder;
  const auto path = folder.file("a.ckpt");
  save_file(path, "test", std::string("shape"), some_weights());
  const auto saved = load(path);
  ASSERT_TRUE(saved);
  EXPECT_EQ(std::get<0>(*saved), "shape");
  EXPECT_TRUE(std::get<1>(*saved) == some_weights());
  // Nothing else was left in the folder.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(SavedFileTest, No_file_is_nothing) {
  const Folder folder;
  EXPECT_FALSE(load(folder.file("none")));
}

TEST(SavedFileTest, Every_byte_counts) {
  const Folder folder;
  const auto path = folder.file("a.ckpt");
  save_file(path, "test", std::string("shape"), Weights{{"w", some_weights()["small"]}});
  const std::string good = read(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    write(path, bad);
    EXPECT_THROW(load(path), UsageError) << "byte " << i;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(path, good.substr(0, size));
    EXPECT_THROW(load(path), UsageError) << "first " << size;
  }
  write(path, good + "x");
  EXPECT_THROW(load(path), UsageError);
  write(path, good);
  EXPECT_TRUE(load(path));
}

RC_GTEST_PROP(SavedFileTest, A_large_file_with_a_changed_byte_is_refused, ()) {
  const Folder folder;
  const auto path = folder.file("a.ckpt");
  save_file(path, "test", std::string("shape"), some_weights());
  std::string bytes = read(path);
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
  const int change = *rc::gen::inRange(1, 256);
  bytes[at] = static_cast<char>(bytes[at] ^ change);
  write(path, bytes);
  RC_ASSERT_THROWS_AS(load(path), UsageError);
}

TEST(SavedFileTest, The_message_names_the_file_and_what_to_try) {
  const Folder folder;
  const auto path = folder.file("a.ckpt");
  save_file(path, "test", std::string("shape"), some_weights());
  EXPECT_THAT([&] { load_payload(path, "replay"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr(path), HasSubstr("a checkpoint of 'test', expected 'replay'"))));
  EXPECT_THAT(([&] { load_file<int, int>(path, "test"); }),
              ThrowsMessage<UsageError>(AllOf(HasSubstr(path), HasSubstr("another version"))));
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_THAT([&] { load(path); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr(path), HasSubstr("truncated or damaged"),
                                              HasSubstr("delete it"))));
  write(path, "some text of another program");
  EXPECT_THAT([&] { load(path); },
              ThrowsMessage<UsageError>(HasSubstr("not a checkpoint of divisi")));
  EXPECT_THROW(load(folder.path().string()), UsageError);  // a folder
}

TEST(SavedFileTest, What_cannot_be_written_leaves_the_old_file) {
  const Folder folder;
  EXPECT_THAT([&] { save_file(folder.file("no/a.ckpt"), "test", 1, 2); },
              ThrowsMessage<Error>(HasSubstr(folder.file("no/a.ckpt"))));
}

}  // namespace
}  // namespace divisi::rl
