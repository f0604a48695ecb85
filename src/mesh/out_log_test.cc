// OutLog against a model that keeps each frame as a string.
#include "mesh/out_log.h"

#include "mesh/inbound.h"
#include "mesh/testing/recorder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace divisi::mesh {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// From `low` to below `high`, evenly whatever the size of the test case.
template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

struct Frame {
  FrameHeader header;
  std::string content;
  std::size_t end;  // in the stream
};

// The frames in a stream, and how many bytes of the next one are there too.
std::vector<Frame> parse(const std::string& stream, std::size_t* rest = nullptr) {
  std::vector<Frame> frames;
  std::size_t at = 0;
  for (;;) {
    while (at < stream.size() && stream[at] == '\0') ++at;
    if (stream.size() - at < kHeaderBytes) break;
    Frame frame;
    frame.header = read_header(bytes_of(stream).data() + at);
    if (stream.size() - at - kHeaderBytes < frame.header.length) break;
    frame.content = stream.substr(at + kHeaderBytes, frame.header.length);
    at += kHeaderBytes + frame.header.length;
    frame.end = at;
    frames.push_back(std::move(frame));
  }
  if (rest != nullptr) *rest = stream.size() - at;
  return frames;
}

// What the log should send: for each number the content of its frame.
class Model {
 public:
  std::uint64_t last() const { return frames_.size(); }
  std::uint64_t acknowledged = 0;

  void topic(std::uint32_t id, const std::string& name) {
    std::string content(4, '\0');
    std::memcpy(content.data(), &id, 4);
    frames_.push_back({Kind::kTopic, 0, content + name, 0});
  }
  void gap(std::uint64_t events) {
    std::string content(8, '\0');
    std::memcpy(content.data(), &events, 8);
    frames_.push_back({Kind::kGap, 0, content, 0});
  }
  // In place of all that is behind `sequence`.
  void gap_at(std::uint64_t sequence, std::uint64_t events) {
    frames_.resize(sequence);
    gap(events);
  }
  // Returns the number of its first frame.
  std::uint64_t event(const std::string& message, std::uint8_t flags) {
    const std::uint64_t first = frames_.size() + 1;
    for (std::size_t at = 0; at == 0 || at < message.size(); at += kChunkBytes) {
      const bool more = message.size() - at > kChunkBytes;
      std::string content = message.substr(at, kChunkBytes);
      if (at == 0 && more) {
        std::string total(8, '\0');
        const std::uint64_t size = message.size();
        std::memcpy(total.data(), &size, 8);
        content = total + content;
      }
      frames_.push_back({at == 0 ? Kind::kEvent : Kind::kChunk,
                         static_cast<std::uint8_t>((at == 0 ? flags : 0) | (more ? kFlagMore : 0)),
                         std::move(content), first});
    }
    return first;
  }
  void drop(std::uint64_t first) {
    for (auto& frame : frames_) {
      if (frame.message != first) continue;
      frame.content.clear();
      frame.flags = kFlagDropped;
    }
  }
  // The frames in `stream` are those behind `from`.
  void check(const std::string& stream, std::uint64_t from) const {
    const auto frames = parse(stream);
    RC_ASSERT(from + frames.size() <= frames_.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const Expected& expected = frames_[from + i];
      RC_ASSERT(frames[i].header.sequence == from + i + 1);
      RC_ASSERT(frames[i].header.kind == expected.kind);
      RC_ASSERT(frames[i].header.flags == expected.flags);
      RC_ASSERT(frames[i].content == expected.content);
    }
  }
  // Whether the frame behind it is the rest of a message.
  bool goes_on_after(std::uint64_t sequence) const {
    if (sequence >= frames_.size()) return false;
    const Expected& next = frames_[sequence];
    return next.kind == Kind::kChunk && next.flags != kFlagDropped;
  }
  std::uint64_t events_after(std::uint64_t sequence) const {
    std::uint64_t count = 0;
    for (std::size_t i = sequence; i < frames_.size(); ++i) {
      count += frames_[i].kind == Kind::kEvent && frames_[i].flags != kFlagDropped ? 1 : 0;
    }
    return count;
  }

 private:
  struct Expected {
    Kind kind;
    std::uint8_t flags;
    std::string content;
    std::uint64_t message;  // number of the first frame of the event
  };
  std::vector<Expected> frames_;
};

template <class T>
void add(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string message_of(const OutEvent& event) {
  std::string message;
  add(message, event.topic_id);
  add(message, static_cast<std::uint32_t>(event.body.size()));
  if (event.topic_id == 0) {
    add(message, static_cast<std::uint16_t>(event.topic_name.size()));
    message += event.topic_name;
  }
  if (event.trace != 0) add(message, event.trace);
  for (const Buffer& buffer : event.buffers) add(message, std::uint64_t{buffer.size()});
  message.append(reinterpret_cast<const char*>(event.body.data()), event.body.size());
  for (const Buffer& buffer : event.buffers) {
    message.resize(align_up(message.size(), kBufferAlignment), '\0');
    message += buffer.text();
  }
  return message;
}

// A log beside its model, and what was written since the last rewind.
struct Pair {
  OutLog log;
  Model model;
  std::string written;
  std::uint64_t from = 0;  // what `written` starts behind

  void append_random() {
    OutEvent event;
    const std::string names[] = {"a", "bb", std::string(255, 'c')};
    const std::string& name = names[pick(0, 3)];
    event.topic_name = name;
    event.topic_id = *rc::gen::element<std::uint32_t>(0, 3);
    event.trace = *rc::gen::element<std::uint64_t>(0, 77);
    event.has_kwargs = *rc::gen::arbitrary<bool>();
    const std::size_t sizes[] = {0, 1, 100, 5'000, 8'192, 70'000, 262'144, 300'000};
    const auto body =
        std::string(sizes[*rc::gen::weightedElement<std::size_t>(
                        {{8, 0}, {8, 1}, {16, 2}, {8, 3}, {4, 4}, {2, 5}, {1, 6}, {1, 7}})],
                    pick('a', 'z'));
    event.body = bytes_of(body);
    if (body.size() >= OutLog::kExternal) {
      event.body_owner = Buffer::copy_of(body);
      event.body = event.body_owner.bytes();
    }
    std::vector<Buffer> buffers;
    for (int i = *rc::gen::weightedElement<int>({{8, 0}, {1, 1}, {1, 3}}); i > 0; --i) {
      buffers.push_back(
          Buffer::copy_of(std::string(sizes[pick<std::size_t>(0, 6)], static_cast<char>('A' + i))));
    }
    event.buffers = buffers;
    const bool droppable = *rc::gen::weightedElement<bool>({{2, false}, {1, true}});
    const std::string message = message_of(event);
    RC_ASSERT(OutLog::message_bytes(event) == message.size());
    log.append_event(event, droppable);
    const auto flags = static_cast<std::uint8_t>((event.has_kwargs ? kFlagKwargs : 0) |
                                                 (event.trace != 0 ? kFlagTrace : 0));
    const std::uint64_t first = model.event(message, flags);
    if (droppable) droppable_[name].push_back(first);
  }

  // The numbers of frames that the peer has complete.
  std::uint64_t arrived() const { return from + parse(written).size(); }

  void write(std::size_t most, bool disturbed) {
    std::array<iovec, 8> parts;
    std::size_t total = 0;
    const auto room = pick<std::size_t>(1, parts.size() + 1);
    const std::size_t count = log.gather({parts.data(), room}, most, total);
    std::string before;
    for (std::size_t i = 0; i < count; ++i) {
      before.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    RC_ASSERT(before.size() == total);
    RC_ASSERT((total == 0) == (log.unsent_bytes() == 0));
    if (disturbed) {  // while the bytes are on their way into the socket
      append_random();
      drop_random();
      // The peer may already have answered to what the socket took.
      const std::string all = written + before;
      const auto seen = from + parse(all).size();
      if (*rc::gen::arbitrary<bool>()) acknowledge(seen);
    }
    std::string after;
    for (std::size_t i = 0; i < count; ++i) {
      after.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    RC_ASSERT(before == after);
    // Everything that was acknowledged has been taken.
    std::size_t least = 0;
    if (model.acknowledged > arrived()) {
      const auto frames = parse(written + before);
      least = frames[model.acknowledged - from - 1].end - written.size();
    }
    const auto taken = disturbed ? pick(least, total + 1) : total;
    log.advance(taken);
    written += before.substr(0, taken);
  }

  void acknowledge(std::uint64_t sequence) {
    RC_ASSERT(log.acknowledge(sequence));
    model.acknowledged = std::max(model.acknowledged, sequence);
    RC_ASSERT(log.acknowledged() == model.acknowledged);
  }

  void drop_random() {
    const std::string name = *rc::gen::element<std::string>("a", "bb", "zz");
    const bool only_oldest = *rc::gen::arbitrary<bool>();
    auto& mine = droppable_[name];
    std::size_t dropped = log.drop_unsent(name, only_oldest);
    RC_ASSERT(!only_oldest || dropped <= 1);
    // The log may no longer know some; those it drops are the newest in a row, oldest first.
    RC_ASSERT(dropped <= mine.size());
    if (only_oldest && dropped == 1) {
      const auto sent = from + parse(written).size();
      while (!mine.empty() && mine.front() <= sent) mine.erase(mine.begin());
      RC_ASSERT(!mine.empty());
      dropped_one_of_ = &mine;
      return resolve_dropped();
    }
    while (dropped > 0) {
      model.drop(mine[mine.size() - dropped]);
      --dropped;
    }
    if (!only_oldest) mine.clear();
  }

  void rewind_somewhere() {
    const auto low = model.acknowledged;
    const auto high = std::max(low, arrived());
    const auto to = low + pick<std::uint64_t>(0, high - low + 1);
    RC_ASSERT(log.rewind(to));
    model.acknowledged = to;
    written.clear();
    from = to;
    RC_ASSERT(log.unsent_bytes() == log.bytes());
    RC_ASSERT(log.to_frame_end() == 0u);
  }

 private:
  // Which one it was shows in the bytes: the first of them that is now empty.
  void resolve_dropped() {
    OutLog same = log;  // which may be in the middle of a write
    std::vector<iovec> parts(100'000);
    std::size_t total = 0;
    const std::size_t count = same.gather(parts, std::size_t{1} << 40, total);
    std::string rest = written;
    for (std::size_t i = 0; i < count; ++i) {
      rest.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    for (const Frame& frame : parse(rest)) {
      if (frame.header.kind != Kind::kEvent || frame.header.flags != kFlagDropped) continue;
      const auto found =
          std::find(dropped_one_of_->begin(), dropped_one_of_->end(), frame.header.sequence);
      if (found == dropped_one_of_->end()) continue;
      model.drop(*found);
      dropped_one_of_->erase(dropped_one_of_->begin(), found + 1);
      return;
    }
    RC_FAIL("the log dropped an event that is not there");
  }

  std::map<std::string, std::vector<std::uint64_t>> droppable_;
  std::vector<std::uint64_t>* dropped_one_of_ = nullptr;
};

RC_GTEST_PROP(OutLogProperty, WhatIsWrittenIsWhatWasAppendedThroughAcksDropsAndRewinds, ()) {
  Pair pair;
  const int steps = pick(1, 50);
  for (int i = 0; i < steps; ++i) {
    switch (
        *rc::gen::weightedElement<int>({{8, 0}, {1, 1}, {1, 2}, {8, 3}, {3, 4}, {2, 5}, {1, 6}})) {
      case 0: pair.append_random(); break;
      case 1: {
        const auto id = pick<std::uint32_t>(1, 4096);
        pair.log.append_topic(id, "topic");
        pair.model.topic(id, "topic");
        break;
      }
      case 2:
        pair.log.append_gap(9);
        pair.model.gap(9);
        break;
      case 3:
        pair.write(*rc::gen::element<std::size_t>(1, 100, 100'000, 1 << 20), i % 2 == 0);
        break;
      case 4: {
        const auto arrived = pair.arrived();
        if (arrived < pair.model.acknowledged) break;
        pair.acknowledge(pair.model.acknowledged +
                         pick<std::uint64_t>(0, arrived - pair.model.acknowledged + 1));
        break;
      }
      case 5: pair.rewind_somewhere(); break;
      default: pair.drop_random(); break;
    }
    pair.model.check(pair.written, pair.from);
    // Nobody can have more than what was written, and the frame that has begun.
    const auto unsent = std::max(pair.model.acknowledged, pair.arrived()) + 2;
    RC_ASSERT(!pair.log.acknowledge(unsent));
    RC_ASSERT(pair.log.last_sequence() == pair.model.last());
    const std::uint64_t behind = pair.model.acknowledged;
    RC_ASSERT(pair.log.unacknowledged_events() ==
              pair.model.events_after(behind) + (pair.model.goes_on_after(behind) ? 1u : 0u));
    // Exactly so many bytes bring it to the end of a frame.
    std::size_t rest = 0;
    parse(pair.written, &rest);
    if (rest > 0) {
      RC_ASSERT(pair.log.to_frame_end() > 0u || pair.log.unsent_bytes() == 0u ||
                pair.written.size() < kHeaderBytes || rest < kHeaderBytes);
    } else {
      RC_ASSERT(pair.log.to_frame_end() == 0u);
    }
  }
  RC_ASSERT(!pair.log.acknowledge(pair.model.last() + 1));
  RC_ASSERT(!pair.log.rewind(pair.model.last() + 1));
  while (pair.log.unsent_bytes() > 0) pair.write(1 << 20, false);
  pair.model.check(pair.written, pair.from);
  RC_ASSERT(pair.arrived() == pair.model.last());
  pair.acknowledge(pair.model.last());
  RC_ASSERT(pair.log.bytes() == 0u);
  RC_ASSERT(pair.log.all_acknowledged());
}

// Long runs with many drops, seen from the receiver's side: numbering, order and counts.
RC_GTEST_PROP(OutLogProperty, WhatIsDroppedIsToldAndTheRestArrivesInOrder, ()) {
  OutLog log;
  testing::Recorder heard;
  auto in = std::make_unique<Inbound>(heard, std::uint64_t{1} << 30);
  auto reader = std::make_unique<FrameReader>();
  std::uint64_t appended = 0;
  std::uint64_t dropped = 0;
  std::set<std::uint64_t> must_arrive;
  const auto write = [&](std::size_t most) {
    std::array<iovec, 8> parts;
    std::size_t total = 0;
    const std::size_t count = log.gather(parts, most, total);
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    bytes.resize(std::min(bytes.size(), most));
    log.advance(bytes.size());
    const Status status = testing::feed(*reader, *in, bytes_of(bytes));
    if (!status.ok()) RC_FAIL(status.message());
  };
  log.append_topic(1, "t");
  const int steps = pick(1, 1'500);
  const bool mostly_stalled = pick(0, 2) == 0;
  for (int i = 0; i < steps; ++i) {
    const int kind = pick(0, 100);
    if (kind < 60) {
      const bool droppable = pick(0, 10) > 0;
      std::string body = std::to_string(++appended);
      if (pick(0, 40) == 0) body.resize(300'000, ' ');
      OutEvent event;
      const std::string topic(1, static_cast<char>('a' + pick(0, 3)));
      event.topic_id = 1;
      event.topic_name = topic;
      event.body = bytes_of(body);
      if (body.size() >= OutLog::kExternal) {
        event.body_owner = Buffer::copy_of(body);
        event.body = event.body_owner.bytes();
      }
      if (droppable) dropped += log.drop_unsent(topic, pick(0, 2) == 0);
      log.append_event(event, droppable);
      if (!droppable) must_arrive.insert(appended);
    } else if (kind < (mostly_stalled ? 61 : 90)) {
      write(*rc::gen::element<std::size_t>(1, 40, 5'000, 400'000));
    } else if (kind < 95) {
      RC_ASSERT(log.acknowledge(in->received()));
    } else if (kind == 99) {
      reader = std::make_unique<FrameReader>();
      in->restart();
      RC_ASSERT(log.rewind(in->received()));
    }
  }
  while (log.unsent_bytes() > 0) write(1 << 20);
  RC_ASSERT(in->received() == log.last_sequence());
  RC_ASSERT(log.acknowledge(in->received()));
  RC_ASSERT(log.bytes() == 0u);

  std::uint64_t told = in->take_dropped_by_peer();
  for (const auto& line : heard.heard) {
    RC_ASSERT(line.starts_with("gap "));
    told += std::stoull(line.substr(4));
  }
  RC_ASSERT(told == dropped);
  std::uint64_t last = 0;
  for (const InEvent& event : in->events().events) {
    const auto body = event.body();
    const auto id = std::stoull(std::string(reinterpret_cast<const char*>(body.data()),
                                            std::min<std::size_t>(body.size(), 20)));
    RC_ASSERT(id > last);
    last = id;
    must_arrive.erase(id);
  }
  RC_ASSERT(must_arrive.empty());
  RC_ASSERT(in->events().events.size() + dropped == appended);
}

TEST(OutLogTest, ALogOfWhichOnlyTheNewestCountsStaysSmall) {
  OutLog log;
  const std::string body(100, 'x');
  for (int i = 0; i < 100'000; ++i) {
    const std::string topic(1, static_cast<char>('a' + i % 3));
    OutEvent event;
    event.topic_id = 1;
    event.topic_name = topic;
    event.body = bytes_of(body);
    log.drop_unsent(topic, false);
    log.append_event(event, true);
  }
  EXPECT_LT(log.bytes(), 3'000u);
  EXPECT_EQ(log.unacknowledged_events(), 3u);
}

// `body` is a literal: the event only looks at it.
OutEvent event_of(std::string_view body, const char* topic = "t") {
  OutEvent event;
  event.topic_id = 1;
  event.topic_name = topic;
  event.body = std::as_bytes(std::span(body));
  return event;
}

std::string write_all(OutLog& log) {
  std::string all;
  while (log.unsent_bytes() > 0) {
    std::array<iovec, 16> parts;
    std::size_t total = 0;
    const std::size_t count = log.gather(parts, 1 << 20, total);
    for (std::size_t i = 0; i < count; ++i) {
      all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    }
    log.advance(total);
  }
  return all;
}

TEST(OutLogTest, AnAckThatOvertakesTheEndOfItsWriteFreesTheBytes) {
  OutLog log;
  log.append_event(event_of("hello"), false);
  std::array<iovec, 4> parts;
  std::size_t total = 0;
  log.gather(parts, 1 << 20, total);
  EXPECT_TRUE(log.acknowledge(1));  // the peer was faster than our way back from the kernel
  EXPECT_GT(log.bytes(), 0u) << "the kernel may still be reading them";
  log.advance(total);
  EXPECT_EQ(log.bytes(), 0u);
}

TEST(OutLogTest, AnAckOfWhatWasNotSentIsRefused) {
  OutLog log;
  for (const char* text : {"one", "two", "three"}) log.append_event(event_of(text), false);
  std::array<iovec, 4> parts;
  std::size_t total = 0;
  log.gather(parts, 1 << 20, total);
  EXPECT_EQ(log.handed_out(), 3u) << "while it is being written";
  log.advance(total / 2);
  EXPECT_FALSE(log.acknowledge(3));
  EXPECT_FALSE(log.rewind(3));
  EXPECT_TRUE(log.acknowledge(1));
}

TEST(OutLogTest, ContentOfLargeFramesIsAlignedInTheStream) {
  OutLog log;
  log.append_event(event_of("x"), false);
  std::vector<Buffer> buffers = {Buffer::copy_of(std::string(700'000, 'b'))};
  OutEvent large = event_of("body");
  large.buffers = buffers;
  log.append_event(large, false);
  const std::string stream = write_all(log);
  EXPECT_EQ(stream.find("bbbb") % kBufferAlignment, 0u);
  const auto frames = parse(stream);
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[1].content.size(), kChunkBytes + 8);
}

TEST(OutLogTest, LargeBytesAreReferencedNotCopied) {
  OutLog log;
  OutEvent event = event_of("");
  const Buffer body = Buffer::copy_of(std::string(100'000, 'x'));
  event.body = body.bytes();
  event.body_owner = body;
  log.append_event(event, false);
  std::array<iovec, 8> parts;
  std::size_t total = 0;
  const std::size_t count = log.gather(parts, 1 << 20, total);
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) found = found || parts[i].iov_base == body.data();
  EXPECT_TRUE(found);
  log.advance(0);
}

RC_GTEST_PROP(OutLogProperty, WhatIsCutOffIsCountedAndTheFrameThatHasBegunIsWhole, ()) {
  Pair pair;
  const int steps = pick(1, 30);
  for (int i = 0; i < steps; ++i) {
    switch (*rc::gen::weightedElement<int>({{8, 0}, {8, 1}, {2, 2}, {1, 3}, {1, 4}})) {
      case 0: pair.append_random(); break;
      case 1: pair.write(*rc::gen::element<std::size_t>(1, 100, 100'000, 1 << 20), false); break;
      case 2: pair.acknowledge(std::max(pair.model.acknowledged, pair.arrived())); break;
      case 3: pair.rewind_somewhere(); break;
      default: pair.drop_random(); break;
    }
  }
  const std::uint64_t arrived = pair.arrived();
  const auto cut = pair.log.cut_unsent();
  while (pair.log.unsent_bytes() > 0) pair.write(1 << 20, false);
  pair.model.check(pair.written, pair.from);
  std::size_t rest = 0;
  parse(pair.written, &rest);
  RC_ASSERT(rest == 0u);
  const std::uint64_t last = pair.log.last_sequence();
  RC_ASSERT(last == pair.arrived());
  RC_ASSERT(last <= arrived + 1);
  RC_ASSERT(cut.events ==
            pair.model.events_after(last) + (pair.model.goes_on_after(last) ? 1u : 0u));
  pair.log.append_gap(cut.events);
  pair.model.gap_at(last, cut.events);
  while (pair.log.unsent_bytes() > 0) pair.write(1 << 20, false);
  pair.model.check(pair.written, pair.from);
  pair.acknowledge(last + 1);
  RC_ASSERT(pair.log.bytes() == 0u);
}

TEST(OutLogTest, TheOldestOfAllNamesIsDroppedFirst) {
  OutLog log;
  const std::string names[] = {"a", "b", "a"};
  for (const std::string& name : names) {
    const std::string body = "content of " + name;
    OutEvent event = event_of(body);
    event.topic_name = name;
    log.append_event(event, true);
  }
  EXPECT_EQ(log.drop_oldest(), "a");
  EXPECT_EQ(log.drop_oldest(), "b");
  EXPECT_EQ(log.drop_unsent("a", false), 1u);
  EXPECT_EQ(log.drop_oldest(), std::nullopt);
  EXPECT_EQ(write_all(log).find("content"), std::string::npos);
}

TEST(OutLogTest, WhatIsCutOffTakesItsGapsAlong) {
  OutLog log;
  log.append_event(event_of("sent"), false);
  write_all(log);
  log.append_gap(5);
  log.append_event(event_of("dropped"), true);
  log.drop_unsent("t", false);
  log.append_event(event_of("kept"), false);
  const auto cut = log.cut_unsent();
  EXPECT_EQ(cut.events, 1u);
  EXPECT_EQ(cut.dropped, 6u);
  EXPECT_EQ(log.last_sequence(), 1u);
  EXPECT_EQ(log.unsent_bytes(), 0u);
  log.append_gap(7);
  const auto frames = parse(write_all(log));
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].header.sequence, 2u);
  EXPECT_TRUE(log.acknowledge(2));
}

TEST(OutLogTest, AnEventThatIsBeingWrittenIsNotDropped) {
  OutLog log;
  log.append_event(event_of("first"), true);
  log.append_event(event_of("second"), true);
  std::array<iovec, 1> one;
  std::size_t total = 0;
  log.gather(one, 1, total);
  EXPECT_EQ(log.drop_unsent("t", false), 1u);
  log.advance(total);
  const std::string rest = write_all(log);
  EXPECT_NE(
      (std::string(static_cast<const char*>(one[0].iov_base), one[0].iov_len) + rest).find("first"),
      std::string::npos);
  EXPECT_EQ(rest.find("second"), std::string::npos);
}

}  // namespace
}  // namespace divisi::mesh
