#include "launch/archive.h"

#include "launch/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace divisi::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Item {
  std::string name;
  std::string content;
  mode_t mode = S_IFREG | 0644;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class ArchiveTest : public ::testing::Test {
 protected:
  // libzip writes what it is told, also names that no honest tool would use.
  std::string make_zip(const std::vector<Item>& items) {
    const std::string path = dir_.path() + "/test.zip";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    EXPECT_NE(archive, nullptr);
    for (const Item& item : items) {
      zip_source_t* source =
          zip_source_buffer(archive, item.content.data(), item.content.size(), 0);
      const zip_int64_t index = zip_file_add(archive, item.name.c_str(), source, ZIP_FL_ENC_UTF_8);
      EXPECT_GE(index, 0) << item.name << ": " << zip_strerror(archive);
      zip_file_set_external_attributes(archive, static_cast<zip_uint64_t>(index), 0, ZIP_OPSYS_UNIX,
                                       static_cast<zip_uint32_t>(item.mode) << 16U);
    }
    EXPECT_EQ(zip_close(archive), 0);
    return path;
  }

  std::string extract_error(const std::string& path, const ArchiveLimits& limits = {}) {
    const Status status = extract_archive(path, target(), limits);
    EXPECT_FALSE(status.ok());
    return status.message();
  }

  std::string target() {
    const std::string path = dir_.path() + "/out";
    fs::create_directory(path);
    return path;
  }

  TempDir dir_ = TempDir::make("divisi_archive_test").value();
};

TEST_F(ArchiveTest, UnpacksFilesAndDirectories) {
  const std::string big(300'000, 'x');
  const std::string zip = make_zip({{"my_module/", "", S_IFDIR | 0755},
                                    {"my_module/a.txt", "hello"},
                                    {"my_module/deep/er/b", big},
                                    {"run", "#!", S_IFREG | 0755}});
  ASSERT_TRUE(extract_archive(zip, target()).ok());
  EXPECT_EQ(read_file(target() + "/my_module/a.txt"), "hello");
  EXPECT_EQ(read_file(target() + "/my_module/deep/er/b"), big);
  EXPECT_NE(fs::status(target() + "/run").permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_EQ(fs::status(target() + "/my_module/a.txt").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(ArchiveTest, RefusesPathsThatLeaveTheDirectory) {
  EXPECT_THAT(extract_error(make_zip({{"ok", "1"}, {"../evil", "x"}})),
              HasSubstr("'../evil' leaves the directory"));
  EXPECT_THAT(extract_error(make_zip({{"a/../../evil", "x"}})), HasSubstr("leaves the directory"));
  EXPECT_THAT(extract_error(make_zip({{"/tmp/evil", "x"}})), HasSubstr("is absolute"));
  EXPECT_THAT(extract_error(make_zip({{"a\\..\\evil", "x"}})), HasSubstr("character"));
  EXPECT_FALSE(fs::exists(dir_.path() + "/evil"));
  EXPECT_FALSE(fs::exists(target() + "/ok")) << "nothing is written before all is checked";
}

TEST_F(ArchiveTest, RefusesLinksAndSpecialFiles) {
  EXPECT_THAT(extract_error(make_zip({{"link", "/etc/passwd", S_IFLNK | 0777}})),
              HasSubstr("'link' is a symbolic link"));
  EXPECT_THAT(extract_error(make_zip({{"pipe", "", S_IFIFO | 0644}})),
              HasSubstr("neither a file nor a directory"));
}

TEST_F(ArchiveTest, RefusesOnePathForTwoThings) {
  EXPECT_THAT(extract_error(make_zip({{"a", "1"}, {"./a", "2"}})), HasSubstr("'a' is in it twice"));
  EXPECT_THAT(extract_error(make_zip({{"a", "1"}, {"a/b", "2"}})),
              HasSubstr("'a' is a file and a directory"));
}

TEST_F(ArchiveTest, BoundsEntriesAndBytes) {
  EXPECT_THAT(extract_error(make_zip({{"a", "1"}, {"b", "2"}, {"c", "3"}}), {.max_entries = 2}),
              HasSubstr("3 entries, more than 2"));
  const std::string zip = make_zip({{"zeros", std::string(1 << 20, '\0')}, {"b", "2"}});
  EXPECT_THAT(extract_error(zip, {.max_bytes = 1 << 20}), HasSubstr("more than 1048576 bytes"));
  EXPECT_LT(fs::file_size(zip), 10'000U) << "it is a bomb only when it is inflated";
}

TEST_F(ArchiveTest, AnEntryThatInflatesToMoreThanItAnnouncedIsDamaged) {
  const std::string zip = make_zip({{"zeros", std::string(1 << 20, '\0')}});
  std::string bytes = read_file(zip);
  // The size of 0x100000 bytes stands in the local header and in the central directory.
  const std::string announced("\x00\x00\x10\x00", 4);
  int patched = 0;
  for (std::size_t at = bytes.find(announced); at != std::string::npos;
       at = bytes.find(announced, at + 4)) {
    bytes.replace(at, 4, std::string("\x10\x00\x00\x00", 4));
    ++patched;
  }
  ASSERT_GE(patched, 1);
  write_file(zip, bytes);
  EXPECT_FALSE(extract_archive(zip, target()).ok());
  EXPECT_FALSE(check_archive(std::as_bytes(std::span(bytes))).has_value());
}

TEST_F(ArchiveTest, EveryTruncationIsAnErrorAndNoCrash) {
  const std::string zip = make_zip({{"dir/file", "some text that is long enough"}, {"b", "2"}});
  const std::string bytes = read_file(zip);
  ASSERT_TRUE(check_archive(std::as_bytes(std::span(bytes))).has_value());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    EXPECT_FALSE(check_archive(std::as_bytes(std::span(part))).has_value()) << size;
  }
}

TEST_F(ArchiveTest, AFlippedBitInAFileIsFound) {
  const std::string zip = make_zip({{"file", "some text"}});
  std::string bytes = read_file(zip);
  bytes[bytes.find("some text")] ^= 1;
  write_file(zip, bytes);
  EXPECT_THAT(extract_error(zip), HasSubstr("'file' is damaged"));
}

TEST_F(ArchiveTest, TellsZipArchivesByTheirFirstBytes) {
  EXPECT_TRUE(looks_like_zip(make_zip({{"a", "1"}})));
  write_file(dir_.path() + "/x.zip", "no zip at all");
  EXPECT_FALSE(looks_like_zip(dir_.path() + "/x.zip"));
  EXPECT_FALSE(looks_like_zip(dir_.path() + "/missing"));
}

TEST(SafeEntryPathTest, BringsPathsIntoNormalForm) {
  EXPECT_EQ(safe_entry_path("a//./b/").value(), "a/b");
  EXPECT_EQ(safe_entry_path("..a/b..").value(), "..a/b..");
  for (const char* bad : {"", "/", "./", ".", "..", "a/..", "/a", "a\nb", "a\\b"}) {
    EXPECT_FALSE(safe_entry_path(bad).has_value()) << bad;
  }
  EXPECT_FALSE(safe_entry_path(std::string("a\0b", 3)).has_value());
  EXPECT_FALSE(safe_entry_path(std::string(256, 'a')).has_value());
  EXPECT_FALSE(safe_entry_path(std::string(2000, '/') + "a").has_value());
}

TEST(TempDirTest, IsPrivateAndRemovedWithItsContent) {
  std::string path;
  {
    TempDir dir = TempDir::make("divisi_temp_dir_test").value();
    path = dir.path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    write_file(path + "/file", "x");
    const TempDir moved = std::move(dir);
    EXPECT_EQ(moved.path(), path);
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace divisi::launch
