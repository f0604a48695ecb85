// FrameReader and Inbound: any way of cutting the stream gives the same events; what is malformed
// is refused; the golden frames mean what docs/wire.md says.
#include "mesh/inbound.h"

#include "mesh/out_log.h"
#include "mesh/testing/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

namespace divisi::mesh::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMaxMessage = 1 << 20;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string golden(const std::string& name) {
  std::ifstream in(std::string(DIVISI_GOLDEN_DIR) + "/" + name + ".bin", std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string frame(Kind kind, const std::string& content, std::uint64_t sequence = 0,
                  std::uint8_t flags = 0, std::uint8_t buffers = 0) {
  FrameHeader header;
  header.kind = kind;
  header.flags = flags;
  header.buffers = buffers;
  header.length = static_cast<std::uint32_t>(content.size());
  header.sequence = sequence;
  std::string bytes(kHeaderBytes, '\0');
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  return bytes + content;
}

std::string in_codec(std::uint8_t codec, std::string framed) {
  framed[2] = static_cast<char>(codec);
  return framed;
}

template <class T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A fresh receiver that is fed `stream`; what it said in the end.
Status fate_of(const std::string& stream, Recorder* recorder = nullptr,
               std::uint64_t max_message = kMaxMessage) {
  Recorder own;
  Recorder& heard = recorder != nullptr ? *recorder : own;
  Inbound in(heard, max_message);
  FrameReader reader;
  Status status = feed(reader, in, bytes_of(stream));
  heard.take(in);
  return status;
}

std::string drain(OutLog& log) {
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

RC_GTEST_PROP(FrameReaderProperty, AnyCutsGiveTheSameEventsAsTheWhole, ()) {
  const auto pick = [](std::size_t low, std::size_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high));
  };
  OutLog log;
  log.append_topic(1, "t");
  const std::size_t sizes[] = {0, 10, 3'000, 9'000, 40'000, 262'100, 300'000, 600'000};
  const std::size_t events = pick(1, 12);
  for (std::size_t i = 0; i < events; ++i) {
    OutEvent event;
    event.topic_id = pick(0, 3) == 0 ? 0 : 1;
    event.topic_name = "name";
    const Buffer body = Buffer::copy_of(std::string(sizes[pick(0, 8)], static_cast<char>('a' + i)));
    event.body = body.bytes();
    if (body.size() >= OutLog::kExternal) event.body_owner = body;
    std::vector<Buffer> buffers;
    for (std::size_t k = pick(0, 3); k > 0; --k) {
      buffers.push_back(
          Buffer::copy_of(std::string(sizes[pick(0, 7)], static_cast<char>('A' + i))));
    }
    event.buffers = buffers;
    log.append_event(event, pick(0, 4) == 0);
    if (pick(0, 4) == 0) log.drop_unsent("name", true);
  }
  log.append_gap(3);
  const std::string stream = drain(log);

  Recorder whole;
  RC_ASSERT(fate_of(stream, &whole, std::uint64_t{1} << 30).ok());

  Recorder parts;
  Inbound in(parts, std::uint64_t{1} << 30);
  FrameReader reader;
  const std::size_t most = *rc::gen::element<std::size_t>(13, 1'000, 50'000, 400'000);
  // Hundreds of thousands of cuts: rapidcheck, which remembers each draw, gives their seed only.
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t size = std::min(stream.size() - at, 1 + random() % most);
    RC_ASSERT(feed(reader, in, bytes_of(stream).subspan(at, size)).ok());
    parts.take(in);
    at += size;
  }
  // Events come at the end of a read, control frames in between.
  std::sort(whole.heard.begin(), whole.heard.end());
  std::sort(parts.heard.begin(), parts.heard.end());
  RC_ASSERT(parts.heard == whole.heard);
  RC_ASSERT(in.received() == log.last_sequence());
  RC_ASSERT(in.connection_bytes() + reader.padding() == stream.size());
}

RC_GTEST_PROP(InboundProperty, NoBytesDoMoreThanEndTheConnection, (const std::string& tail)) {
  // A valid start brings the garbage further in.
  std::string stream = golden("topic") + golden("event");
  const std::size_t at = *rc::gen::inRange<std::size_t>(0, stream.size());
  stream.resize(at);
  stream += tail;
  (void)fate_of(stream);
}

RC_GTEST_PROP(InboundProperty, ADamagedByteIsRefusedOrOnlyChangesAnEvent, ()) {
  std::string stream = golden("topic") + golden("event") + golden("event_kwargs") +
                       golden("event_named") + golden("event_traced") + golden("event_buffers");
  const auto at =
      *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, stream.size()));
  stream[at] = static_cast<char>(*rc::gen::arbitrary<char>());
  (void)fate_of(stream);
}

TEST(GoldenTest, EachFrameMeansWhatTheProtocolSays) {
  Recorder heard;
  const std::string stream =
      golden("topic") + golden("event") + golden("event_kwargs") + golden("event_named") +
      golden("event_traced") + golden("event_buffers") + golden("event_dropped") + golden("gap") +
      golden("ack") + golden("ping") + golden("subscribe") + golden("unsubscribe") +
      golden("ready") + golden("roles") + golden("labels") + golden("bye");
  ASSERT_TRUE(fate_of(stream, &heard).ok());
  const std::string body = "\x92\x07\xa2hi";
  EXPECT_THAT(heard.heard,
              ElementsAre("gap 12", "ack 41 1000000", "subscribe only task.a,task.b",
                          "unsubscribe task.a", "ready", "roles learner", "labels gpu,left",
                          "bye true ", "event 2 task.greeting codec 1 flags 0 body " + body,
                          "event 3 task.greeting codec 1 flags 2 body \x92\x07\x81\xa4step\x03",
                          "event 4 task.rare codec 1 flags 0 body " + body,
                          "event 5 task.greeting codec 1 flags 4 body " + body,
                          "event 6 task.greeting codec 1 flags 0 body " + body + " [" +
                              std::string(100, 'A') + "] [] [CCC]"));
}

TEST(GoldenTest, TheSenderWritesTheSameBytes) {
  const std::string body = "\x92\x07\xa2hi";
  const std::string kwargs = "\x92\x07\x81\xa4step\x03";
  OutLog log;
  log.append_topic(5, "task.greeting");
  OutEvent event;
  event.topic_id = 5;
  event.codec = 1;
  event.body = bytes_of(body);
  log.append_event(event, false);
  OutEvent with_kwargs = event;
  with_kwargs.body = bytes_of(kwargs);
  with_kwargs.has_kwargs = true;
  log.append_event(with_kwargs, false);
  OutEvent named = event;
  named.topic_id = 0;
  named.topic_name = "task.rare";
  log.append_event(named, false);
  OutEvent traced = event;
  traced.trace = 0x1122334455667788;
  log.append_event(traced, false);
  EXPECT_EQ(drain(log), golden("topic") + golden("event") + golden("event_kwargs") +
                            golden("event_named") + golden("event_traced"));
  const std::vector<Buffer> buffers = {Buffer::copy_of(std::string(100, 'A')), Buffer(),
                                       Buffer::copy_of("CCC")};
  OutEvent extra = event;
  extra.buffers = buffers;
  log.append_event(extra, false);
  // Single zero bytes in front bring its content to a multiple of 64.
  const std::string padded = drain(log);
  EXPECT_EQ(padded.substr(padded.find_first_not_of('\0')), golden("event_buffers"));
  OutEvent dropped = event;
  dropped.topic_name = "d";
  log.append_event(dropped, true);
  EXPECT_EQ(log.drop_unsent("d", true), 1u);
  log.append_gap(12);
  EXPECT_EQ(drain(log), golden("event_dropped") + golden("gap"));
}

std::vector<Buffer> many_buffers(std::size_t count) {
  std::vector<Buffer> buffers;
  for (std::size_t n = 0; n < count; ++n) {
    buffers.push_back(Buffer::copy_of(std::string(n % 3, static_cast<char>(n % 256))));
  }
  return buffers;
}

TEST(GoldenTest, TheNumberOfManyBuffersStandsInTheMessage) {
  const auto buffers = many_buffers(300);
  const std::string body = "\x92\x07\xa2hi";
  OutLog log;
  log.append_topic(5, "task.greeting");
  for (int i = 0; i < 7; ++i) log.append_gap(1);
  (void)drain(log);
  OutEvent event;
  event.topic_id = 5;
  event.codec = 1;
  event.body = bytes_of(body);
  event.buffers = buffers;
  log.append_event(event, false);
  const std::string padded = drain(log);
  EXPECT_EQ(padded.substr(padded.find_first_not_of('\0')), golden("event_many_buffers"));

  std::string gaps;
  for (std::uint64_t i = 2; i < 9; ++i) gaps += frame(Kind::kGap, std::string(8, '\0'), i);
  Recorder heard;
  ASSERT_TRUE(fate_of(golden("topic") + gaps + golden("event_many_buffers"), &heard).ok());
  std::string expected = "event 9 task.greeting codec 1 flags 0 body " + body;
  for (const Buffer& buffer : buffers) {
    expected +=
        " [" + std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size()) + "]";
  }
  EXPECT_EQ(heard.heard.back(), expected);
}

TEST(InboundTest, AnyNumberOfBuffersArrivesAlsoTracedAndInChunks) {
  const std::string body = "body";
  for (const std::size_t count : {254u, 255u, 256u, 1'000u, 70'000u}) {
    const auto buffers = many_buffers(count);
    OutLog log;
    OutEvent event;
    event.topic_name = "n";
    event.codec = 1;
    event.trace = 0x1122334455667788;
    event.body = bytes_of(body);
    event.buffers = buffers;
    log.append_event(event, false);
    Recorder heard;
    Inbound in(heard, 1u << 30);
    FrameReader reader;
    ASSERT_TRUE(feed(reader, in, bytes_of(drain(log))).ok()) << count;
    ASSERT_EQ(in.events().events.size(), 1u) << count;
    const InEvent& got = in.events().events.front();
    EXPECT_EQ(got.trace(), event.trace) << count;
    std::vector<Buffer> out;
    read_buffers(got, in.events().owners[got.owner], out);
    ASSERT_EQ(out.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(std::ranges::equal(out[i].bytes(), buffers[i].bytes())) << count << " " << i;
    }
  }
}

TEST(InboundTest, AWrongNumberOfManyBuffersIsRefused) {
  const auto message = [](std::uint64_t count) {
    const std::string text = number(std::uint64_t{0}) + number(std::uint16_t{1}) + "n" +
                             number(count) + std::string(64, '\0');
    return frame(Kind::kEvent, text, 1, 0, kManyBuffers);
  };
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{254}, std::uint64_t{255}, std::uint64_t{1} << 32,
        std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    EXPECT_FALSE(fate_of(message(count)).ok()) << count;
  }
}

TEST(InboundTest, MalformedFramesAreRefusedWithAReason) {
  const std::string topic = golden("topic");
  const std::string first_chunk = number(std::uint64_t{600'000}) + std::string(kChunkBytes, 'x');
  const std::string prefix = number(std::uint32_t{5}) + number(std::uint32_t{0});
  const struct {
    const char* what;
    std::string stream;
    const char* reason;
  } kCases[] = {
      {"unknown kind", frame(static_cast<Kind>(0x7f), "x"), "unexpected frame"},
      {"unknown kind, empty", frame(static_cast<Kind>(0x7f), ""), ""},
      {"greeting again", golden("hello"), "unexpected frame"},
      {"number too high", frame(Kind::kTopic, number(1u) + "t", 2), "frame 2 where 1 was due"},
      {"number zero", frame(Kind::kTopic, number(1u) + "t", 0), "frame 0 where 1 was due"},
      {"repeated number", topic + topic, "frame 1 where 2 was due"},
      {"oversized event", frame(Kind::kEvent, std::string(kChunkBytes + 9, 'x'), 1),
       "oversized frame"},
      {"oversized chunk", frame(Kind::kChunk, std::string(kChunkBytes + 1, 'x'), 1),
       "oversized frame"},
      {"oversized ack", frame(Kind::kAck, std::string(9, 'x')), "oversized frame"},
      {"short ack", frame(Kind::kAck, std::string(7, 'x')), "ACK of the wrong size"},
      {"short gap", frame(Kind::kGap, std::string(7, 'x'), 1), "gap of the wrong size"},
      {"topic zero", frame(Kind::kTopic, number(0u) + "t", 1), "out of range"},
      {"topic too high", frame(Kind::kTopic, number(4097u) + "t", 1), "out of range"},
      {"topic taken", topic + frame(Kind::kTopic, number(5u) + "t", 2), "taken"},
      {"topic without name", frame(Kind::kTopic, number(1u), 1), "without a name"},
      {"topic name too long", frame(Kind::kTopic, number(1u) + std::string(261, 't'), 1),
       "oversized"},
      {"event on unknown topic", frame(Kind::kEvent, prefix, 1), "never named"},
      {"event without prefix", topic + frame(Kind::kEvent, "1234567", 2), "malformed"},
      {"body beyond the end", topic + frame(Kind::kEvent, number(5u) + number(9u) + "12345678", 2),
       "malformed"},
      {"bytes behind the body", topic + frame(Kind::kEvent, number(5u) + number(1u) + "123", 2),
       "malformed"},
      {"name beyond the end",
       frame(Kind::kEvent, number(0u) + number(0u) + number(std::uint16_t{9}) + "x", 1),
       "malformed"},
      {"name too long",
       frame(Kind::kEvent,
             number(0u) + number(0u) + number(std::uint16_t{300}) + std::string(300, 'n'), 1),
       "malformed"},
      {"missing trace", topic + frame(Kind::kEvent, prefix, 2, kFlagTrace), "malformed"},
      {"missing buffer lengths", topic + frame(Kind::kEvent, prefix, 2, 0, 1), "malformed"},
      {"buffer beyond the end",
       topic + frame(Kind::kEvent, prefix + number(std::uint64_t{1}), 2, 0, 1), "malformed"},
      {"endless buffer",
       topic +
           frame(Kind::kEvent, prefix + number(~std::uint64_t{0}) + std::string(64, 'x'), 2, 0, 1),
       "malformed"},
      {"chunk of nothing", frame(Kind::kChunk, "x", 1), "belongs to no message"},
      {"large chunk of nothing", frame(Kind::kChunk, std::string(100'000, 'x'), 1),
       "belongs to no message"},
      {"announced too long",
       frame(Kind::kEvent, number(kMaxMessage + 1) + std::string(50'000, 'x'), 1, kFlagMore),
       "oversized message"},
      {"announced endless", frame(Kind::kEvent, number(~std::uint64_t{0}), 1, kFlagMore),
       "oversized message"},
      {"chunks for little", frame(Kind::kEvent, number(std::uint64_t{10}) + "12345", 1, kFlagMore),
       "short message"},
      {"no announcement", frame(Kind::kEvent, "1234", 1, kFlagMore), "without its length"},
      {"event inside an event",
       frame(Kind::kEvent, first_chunk, 1, kFlagMore) + frame(Kind::kEvent, prefix, 2),
       "inside another"},
      {"message ends early",
       frame(Kind::kEvent, first_chunk, 1, kFlagMore) + frame(Kind::kChunk, "x", 2), "ended after"},
      {"message goes on",
       frame(Kind::kEvent, first_chunk, 1, kFlagMore) +
           frame(Kind::kChunk, std::string(kChunkBytes, 'x'), 2, kFlagMore) +
           frame(Kind::kChunk, std::string(600'000 - 2 * kChunkBytes, 'x'), 3, kFlagMore),
       "ended after"},
      {"chunk too long",
       frame(Kind::kEvent, number(kChunkBytes + std::uint64_t{5}) + std::string(kChunkBytes, 'x'),
             1, kFlagMore) +
           frame(Kind::kChunk, "123456", 2),
       "belongs to no message"},
      {"unknown codec", topic + in_codec(3, frame(Kind::kEvent, prefix, 2)), "unknown codec 3"},
      {"unknown flag", topic + frame(Kind::kEvent, prefix, 2, 0x20), "unknown flags 0x20"},
      {"unknown flag of a long message", frame(Kind::kEvent, first_chunk, 1, kFlagMore | 0x80),
       "unknown flags 0x81"},
      {"event without a name",
       frame(Kind::kEvent, number(0u) + number(0u) + number(std::uint16_t{0}), 1),
       "without a name"},
      {"goodbye with garbage", frame(Kind::kBye, "\xc1"), "malformed list"},
      {"goodbye without its reason", frame(Kind::kBye, "\x90"), "empty reason"},
      {"names that are no list", frame(Kind::kSubscribe, "\xa1x"), "malformed list"},
      {"names cut off", frame(Kind::kSubscribe, "\x92\xa1x"), "malformed list"},
      {"a name too long", frame(Kind::kRoles, "\x91\xda\x01\x05" + std::string(261, 'n')),
       "malformed list"},
  };
  for (const auto& test : kCases) {
    const Status status = fate_of(test.stream);
    EXPECT_FALSE(status.ok()) << test.what;
    EXPECT_EQ(status.code(), Code::kInvalid) << test.what;
    EXPECT_THAT(status.message(), HasSubstr(test.reason)) << test.what;
  }
}

TEST(InboundTest, AGoodbyeWithAReasonEndsTheConnectionAtOnce) {
  Recorder heard;
  const Status status = fate_of(frame(Kind::kBye, "\x91\xa4oops") + golden("ready"), &heard);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("oops"));
  EXPECT_THAT(heard.heard, ElementsAre("bye false oops"));
}

TEST(InboundTest, PickledEventsAreTakenOnlyWithLeave) {
  const std::string stream = golden("topic") + in_codec(2, golden("event"));
  for (const bool allowed : {false, true}) {
    Recorder heard;
    Inbound in(heard, kMaxMessage, allowed);
    FrameReader reader;
    ASSERT_TRUE(feed(reader, in, bytes_of(stream)).ok());
    heard.take(in);
    EXPECT_EQ(heard.heard.size(), allowed ? 1u : 0u);
    EXPECT_EQ(in.take_refused(), allowed ? 0u : 1u);
    EXPECT_EQ(in.received(), 2u);  // refused, but acknowledged: it is not to come again
  }
}

TEST(InboundTest, AnAckThatTheNodeRefusesEndsTheConnection) {
  Recorder heard;
  heard.ack_result = make_status(Code::kInvalid, "acknowledged event 41 of 3");
  EXPECT_FALSE(fate_of(golden("ack"), &heard).ok());
}

TEST(InboundTest, AMessageGoesOnAfterAReconnect) {
  Recorder heard;
  Inbound in(heard, kMaxMessage);
  OutLog log;
  log.append_topic(1, "t");
  OutEvent event;
  event.topic_id = 1;
  const Buffer body = Buffer::copy_of(std::string(700'000, 'b'));
  event.body = body.bytes();
  event.body_owner = body;
  log.append_event(event, false);
  {
    FrameReader first;
    const std::string stream = drain(log);
    ASSERT_TRUE(feed(first, in, bytes_of(stream).first(400'000)).ok());
  }
  EXPECT_EQ(in.received(), 2u);
  EXPECT_GT(in.assembling_bytes(), 0u);
  in.restart();
  ASSERT_TRUE(log.rewind(in.received()));
  FrameReader second;
  ASSERT_TRUE(feed(second, in, bytes_of(drain(log))).ok());
  ASSERT_EQ(in.events().events.size(), 1u);
  EXPECT_EQ(in.events().events[0].body().size(), 700'000u);
}

TEST(InboundTest, AMessageCutOffInItsFirstChunkMayBeDroppedBeforeItComesAgain) {
  Recorder heard;
  Inbound in(heard, kMaxMessage);
  OutLog log;
  log.append_topic(1, "t");
  OutEvent event;
  event.topic_id = 1;
  event.topic_name = "t";
  const Buffer body = Buffer::copy_of(std::string(700'000, 'b'));
  event.body = body.bytes();
  event.body_owner = body;
  log.append_event(event, true);
  {
    FrameReader first;
    ASSERT_TRUE(feed(first, in, bytes_of(drain(log)).first(100'000)).ok());
  }
  in.restart();
  ASSERT_TRUE(log.rewind(in.received()));
  EXPECT_EQ(log.drop_unsent("t", false), 1u);
  OutEvent small = event;
  const std::string text = "small";
  small.body = bytes_of(text);
  small.body_owner = Buffer();
  log.append_event(small, false);
  FrameReader second;
  const Status status = feed(second, in, bytes_of(drain(log)));
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(in.events().events.size(), 1u);
  EXPECT_EQ(in.take_dropped_by_peer(), 1u);
}

}  // namespace
}  // namespace divisi::mesh::testing
