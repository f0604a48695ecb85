#include "divisi/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace divisi {
namespace {

// Counts its releases, and fills a buffer of one page.
struct Foreign {
  std::vector<std::byte> bytes = std::vector<std::byte>(4096, std::byte{7});
  std::atomic<int> released{0};

  Buffer wrap() {
    return Buffer::wrap(bytes.data(), bytes.size(), [this] { ++released; });
  }
};

TEST(BufferTest, IsEmptyByDefault) {
  const Buffer none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.size(), 0U);
  EXPECT_TRUE(none.bytes().empty());
  EXPECT_TRUE(Buffer(0).empty());
  EXPECT_TRUE(Buffer::copy_of("").empty());
}

TEST(BufferTest, HoldsEverySizeAroundThePageAndThePoolClasses) {
  for (const std::size_t size : {1UL, 8UL, 4095UL, 4096UL, 4097UL, 8191UL, 8192UL, 8193UL,
                                 4UL << 20, (4UL << 20) + 1, 9UL << 20}) {
    Buffer buffer(size);
    ASSERT_EQ(buffer.size(), size);
    std::memset(buffer.mutable_data(), 0x5A, size);
    EXPECT_EQ(buffer.bytes().front(), std::byte{0x5A});
    EXPECT_EQ(buffer.bytes().back(), std::byte{0x5A});
  }
}

TEST(BufferTest, IsPageAlignedFromAPageOn) {
  for (const std::size_t size : {4096UL, 5000UL, 1UL << 20, 5UL << 20}) {
    const Buffer buffer(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U) << size;
  }
}

TEST(BufferTest, CopiesBytesAndText) {
  std::string text = "hello";
  const Buffer buffer = Buffer::copy_of(text);
  text[0] = 'j';
  EXPECT_EQ(buffer.text(), "hello");
  const Buffer again = Buffer::copy_of(buffer.bytes());
  EXPECT_EQ(again.text(), "hello");
  EXPECT_NE(again.data(), buffer.data());
}

TEST(BufferTest, SharesItsBytesBetweenCopies) {
  const Buffer first = Buffer::copy_of("shared");
  const Buffer second = first;
  EXPECT_EQ(first.data(), second.data());
  EXPECT_EQ(second.text(), "shared");
}

TEST(BufferTest, ReleasesForeignBytesOnceWithTheLastHandle) {
  Foreign foreign;
  {
    Buffer first = foreign.wrap();
    Buffer second = first;
    Buffer third = std::move(first);
    EXPECT_TRUE(
        first.empty());  // NOLINT(bugprone-use-after-move): moved-from is empty, by contract
    EXPECT_EQ(third.data(), foreign.bytes.data());
    third = Buffer();
    EXPECT_EQ(foreign.released, 0);
    second = second.slice(1, 2);
    EXPECT_EQ(foreign.released, 0);
  }
  EXPECT_EQ(foreign.released, 1);
}

TEST(BufferTest, AssigningItToItselfKeepsIt) {
  Foreign foreign;
  Buffer buffer = foreign.wrap();
  const Buffer& alias = buffer;
  buffer = alias;
  EXPECT_EQ(foreign.released, 0);
  EXPECT_EQ(buffer.size(), foreign.bytes.size());
}

TEST(BufferTest, AdoptsAReferenceToAPartOfABlock) {
  static int released = 0;
  std::vector<std::byte> bytes(10, std::byte{1});
  detail::BufferBlock block;
  block.data = bytes.data();
  block.size = bytes.size();
  block.release = [](detail::BufferBlock*) { ++released; };
  {
    const Buffer part = Buffer::adopt(&block, 2, 5);
    EXPECT_EQ(part.data(), bytes.data() + 2);
    EXPECT_EQ(part.size(), 5U);
  }
  EXPECT_EQ(released, 1);
}

TEST(BufferTest, SlicesWithoutCopyingAndOutlivesTheWhole) {
  Buffer slice;
  {
    const Buffer whole = Buffer::copy_of("0123456789");
    slice = whole.slice(3, 4);
    EXPECT_EQ(slice.data(), whole.data() + 3);
  }
  EXPECT_EQ(slice.text(), "3456");
  EXPECT_EQ(slice.slice(4, 0).size(), 0U);
}

TEST(BufferTest, LargeOnesAreUsedAgainByThoseOfTheirSize) {
  constexpr std::size_t kSize = std::size_t{9} << 20;
  const std::byte* first = nullptr;
  {
    Buffer buffer(kSize);
    first = buffer.data();
    std::memset(buffer.mutable_data(), 7, buffer.size());
  }
  Buffer same(kSize - 1000);
  EXPECT_EQ(same.data(), first);
  EXPECT_EQ(same.size(), kSize - 1000);
  const Buffer other(kSize);
  EXPECT_NE(other.data(), first) << "it is in use";
  {
    const Buffer larger(4 * kSize);
  }
  const Buffer small(kSize);
  EXPECT_NE(small.data(), first);
  std::memset(same.mutable_data(), 1, same.size());
}

TEST(BufferDeathTest, RefusesASliceOutsideTheBuffer) {
  const Buffer whole = Buffer::copy_of("0123");
  EXPECT_DEATH((void)whole.slice(2, 3), "a slice lies inside its buffer");
  EXPECT_DEATH((void)whole.slice(1, SIZE_MAX), "a slice lies inside its buffer");
}

// The sanitizer presets watch this one: no race, no double release, no leak.
TEST(BufferTest, HandlesMayBeCopiedAndDroppedOnManyThreads) {
  Foreign foreign;
  {
    const Buffer whole = foreign.wrap();
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([whole] {
        for (int i = 0; i < 2000; ++i) {
          const Buffer copy = whole;
          const Buffer part = copy.slice(0, 16);
          Buffer pooled(8192);
          std::memcpy(pooled.mutable_data(), part.data(), part.size());
        }
      });
    }
  }
  EXPECT_EQ(foreign.released, 1);
}

static_assert(std::is_nothrow_move_constructible_v<Buffer>);
static_assert(std::is_nothrow_copy_constructible_v<Buffer>);

}  // namespace
}  // namespace divisi
