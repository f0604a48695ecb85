// Node: this process among its peers.
//
//   auto node = Node::start(reactor, options, on_change);   // listens
//   node->join();                                           // blocks until the known links are up
//   node->subscribe("task.greeting", "greeting", loop);
//   node->send("task.greeting", payload, {});
//   node->close(EndLimits());                                // flushes, says goodbye
//
// Guarantees: docs/guarantees.md. Threads: every public member may be called from any thread but
// the loop's own; those that say "blocks" never from a callback of the reactor. One lock (`mutex_`)
// protects what emitters and the loop share; it is never held across a system call or a callback.
#pragma once

#include "divisi/delivery.h"
#include "divisi/payload.h"
#include "io/reactor.h"
#include "mesh/link.h"
#include "mesh/options.h"
#include "mesh/routes.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace divisi::mesh {

class Node {
 public:
  // `on_change` runs on the loop.
  static Result<std::unique_ptr<Node>> start(io::Reactor& reactor, NodeOptions options,
                                             OnPeerChange on_change);
  ~Node();  // as close(0ms)

  // Where this node listens, with the real port; empty if nowhere.
  std::string address() const { return address_; }
  int id() const { return options_.self.node; }
  const std::vector<std::string>& dialled() const { return options_.dial; }
  std::uint64_t incarnation() const { return options_.self.incarnation; }

  // Blocks. kForbidden or kUnauthorized if a peer refused us, kTimeout after join_timeout with what
  // is missing, kCancelled by cancel_join().
  Status join();
  void cancel_join();
  // The same as a question, for callers that must not block.
  bool joined() const;

  // Blocks while a queue is full (policy kBlock). kTimeout names the peer that stayed full.
  Status send(std::string_view topic, const PayloadView& payload, const SendOptions& options);

  void subscribe(std::string_view topic, std::string_view event, const LoopPtr& loop);
  // For each further listener of a loop, see Routes::begin_catch_up.
  bool begin_catch_up() { return routes_.begin_catch_up(); }
  void catch_up(std::string_view topic, std::string_view event, const LoopPtr& loop,
                ListenerId id) {
    routes_.catch_up(topic, event, loop, id);
  }
  void cancel_catch_up() { routes_.cancel_catch_up(); }
  void unsubscribe(std::string_view topic, const event::LoopCore* loop);
  void unsubscribe_all(const event::LoopCore* loop);

  // Whether a linked peer may listen to `topic`; false without such a peer.
  bool listens(int node, std::string_view topic) const;
  // An event of this process itself for its own listeners of `topic`.
  void deliver_local(std::string_view topic, const Payload& payload) {
    routes_.post_local(topic, payload, id());
  }

  void ready();
  void announce_role(std::string role);
  // What the tasks of this process add to the labels of its launcher, instead of what they did.
  // They have passed check_labels().
  void announce_labels(std::set<std::string> labels);

  // Blocks until all living peers have acknowledged everything; false if it gave up.
  bool flush(std::chrono::milliseconds deadline, const std::stop_token& stop = {});
  // The same as a question.
  bool flushed() const;

  // Blocks as flush(), but for as long as acknowledgements advance.
  bool flush(const EndLimits& limits);

  // Whether new peers may link; those that are linked may come back in any case. They may at first.
  void welcome_newcomers(bool welcome);

  // Blocks: refuses new sends, flushes, says goodbye, closes. A peer that is given up hears of the
  // gap before the goodbye. Returns those with unacknowledged events; called again it does nothing.
  std::vector<GivenUp> close(const EndLimits& limits);
  std::vector<GivenUp> close(std::chrono::milliseconds total) { return close({.total = total}); }

  // The launcher saw that process end: do not wait for its heartbeat. `for_good`: it listened there
  // and will not be started again, so that nobody waits for it or keeps anything for it.
  void peer_died(int node, std::optional<io::Address> for_good = {});

  // --- a job whose nodes come and go (node_members.cc); loop only ---
  // The node is part of the job from now on. If `place.dial`, a link to it is kept, as to those of
  // NodeOptions::dial, but join() does not wait for it.
  void welcome(const PeerPlace& place);
  // The node is gone for good: nobody waits for it or dials it. While its connection lasts it may
  // finish what it has to say; with its end, or at once if there is none, it has left.
  void dismiss(const PeerPlace& place);
  // Somebody knows that the missing peers will come: join_timeout begins anew.
  void extend_join();

  std::vector<PeerInfo> peers() const;
  // Blocks until `count` peers are connected; false if it gave up.
  bool wait_for_peers(std::size_t count, std::chrono::milliseconds timeout,
                      const std::stop_token& stop = {}) const;
  NodeStats stats() const;

 private:
  friend class Connection;
  class LinkControl;
  struct Dialer;
  struct OutTopic {
    std::string name;
    std::uint32_t id = 0;  // 0: beyond the interned ones
    std::uint64_t sent = 0;
    std::uint64_t dropped = 0;
    std::size_t turn = 0;  // of one-of-N delivery
    int users = 0;         // sends under way, which may wait
    // Whether each link wants it, valid for one state of the links.
    std::vector<bool> wanted;
    std::uint64_t wanted_version = 0;
  };

  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  Node(io::Reactor& reactor, NodeOptions options, OnPeerChange on_change);
  Status listen();
  void make_room_for(const Connection& newcomer);

  // node.cc: with mutex_ held.
  using Lock = std::unique_lock<std::mutex>;
  bool has_joined() const;
  bool has_flushed() const;
  OutTopic& out_topic(std::string_view name);
  bool wants(const Outbound& out, std::string_view topic) const;
  void choose(OutTopic& topic, const Target& to, std::vector<LinkPtr>& targets);
  Status queue(Lock& lock, const LinkPtr& link, OutTopic& topic, OutEvent& event, std::size_t bytes,
               Policy policy);
  void append(Link& link, OutTopic& topic, OutEvent& event, bool droppable);
  void append_gap(Outbound& out);
  Status wait_for_space(Lock& lock, const LinkPtr& link, const OutTopic& topic, std::size_t bytes);
  bool make_space_by_dropping(Link& link, OutTopic& topic, std::size_t bytes, Policy policy);
  void say_whether_waiting(Lock& lock, const LinkPtr& link);
  bool wait_for_each_other(const Link& link) const;
  // After the log of a link got longer or shorter: what is kept for the lost counts for them alone.
  void count_queued(const Outbound& out, std::size_t before) {
    if (!out.lost && !out.left) queued_bytes_ += out.log.bytes() - before;
  }
  bool settled(const Outbound& out, io::TimePoint since, std::chrono::milliseconds silence) const;
  Result<bool> make_space(Lock& lock, const LinkPtr& link, OutTopic& topic, std::size_t bytes,
                          Policy policy);
  static bool takes(const Link& link, std::size_t bytes);
  bool is_full(const Link& link, std::size_t bytes) const;
  bool was_idle();
  void stay_close(Lock& lock, const LinkPtr& link);
  void written_or_flush_later(Lock& lock, const LinkPtr& link, bool at_once);
  void request_flush();
  void wake_waiters() const;  // without mutex_

  // node_write.cc: with mutex_ held; releases it around the system call.
  void write_some(Lock& lock, const LinkPtr& link);
  std::size_t gather(Outbound& out, std::span<iovec> parts, std::size_t& control_bytes);
  void add_control(Outbound& out, Kind kind, std::uint8_t flags, std::uint64_t sequence,
                   std::span<const std::byte> content);
  void add_names(Outbound& out, Kind kind, std::uint8_t flags,
                 const std::vector<std::string>& names);
  void add_ack(Outbound& out);
  std::vector<std::string> own_labels() const { return {task_labels_.begin(), task_labels_.end()}; }
  void broadcast_names(Kind kind, const std::vector<std::string>& names);

  // Loop only.
  void flush_links();

  // node.cc
  Status await_links();
  std::string missing_links() const;      // mutex_ held
  PeerInfo info(const Link& link) const;  // mutex_ held

  // node_dial.cc: loop only.
  Status start_on_loop();
  void dial(const std::shared_ptr<Dialer>& dialer);
  void redial_later(const std::shared_ptr<Dialer>& dialer);
  void dial_failed(const std::shared_ptr<Dialer>& dialer, const Status& status);
  void dialer_joined(const std::shared_ptr<Dialer>& dialer);
  void forget(const std::shared_ptr<Connection>& connection);
  bool preferred(const Connection& connection, const Identity& peer) const;
  Handshake::Verdict admit(const Connection& connection, const Identity& peer);
  void greeted(const std::shared_ptr<Connection>& connection);
  void bound_lingering();
  void refused(const std::shared_ptr<Connection>& connection);

  // node_links.cc: loop only.
  LinkPtr make_link(const Identity& peer);
  Status resume(const LinkPtr& link, Connection& connection);
  void attach(const std::shared_ptr<Connection>& connection);
  void begin_anew(const LinkPtr& link);
  void list_links();  // mutex_ held
  void detach(const LinkPtr& link, const std::string& reason);
  void connection_ended(const std::shared_ptr<Connection>& connection, const Status& why);
  void link_broken(const LinkPtr& link, const std::string& reason, bool by_fault = false);
  bool has_prospered(const Link& link, bool by_fault);
  bool worth_saying(Link& link, std::string_view fault);
  void declare_lost(const LinkPtr& link, std::string_view why);
  void say_why(const LinkPtr& link, const std::string& reason);
  bool complain(const std::string& text);
  void retire(const LinkPtr& link, bool said_goodbye);
  void tick();
  void tell(PeerChange change, const Link& link);
  void say_goodbye(bool politely);
  void part(Lock& lock, const LinkPtr& link);
  void linger_when_written(Lock& lock, const LinkPtr& link);
  void link_of_dead_process(const LinkPtr& link);
  void stop_on_loop();

  // node_receive.cc: loop only.
  Status received(const LinkPtr& link);
  void count_received(const Received& events);  // mutex_ held
  void relay(const LinkPtr& from, const Received& events);
  void open_relay(Lock& lock);  // mutex_ held
  void grant_after_relay(Lock& lock, const LinkPtr& acknowledged_by);
  void note_relayed(Outbound& out, int source, std::size_t bytes);  // mutex_ held
  std::set<int> take_relayed(Outbound& out) const;                  // mutex_ held
  std::uint64_t relay_backlog(int source) const;                    // mutex_ held
  void update_grant(Link& link);                                    // mutex_ held
  void schedule_ack(const LinkPtr& link);
  std::uint64_t least_window() const;
  std::uint64_t window() const;  // mutex_ held

  // Constant after construction.
  io::Reactor& reactor_;
  NodeOptions options_;
  const OnPeerChange on_change_;
  std::string address_;

  // Provide their own synchronisation.
  Routes routes_;
  std::atomic<std::uint64_t> traced_{0};  // events that got a trace id

  std::mutex subscribe_mutex_;  // before mutex_: peers hear of changes in the order they happen
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // acknowledgements, links, joining
  // Guarded by mutex_.
  std::map<int, LinkPtr> links_;  // by node id, without those that left
  std::vector<LinkPtr> link_list_;
  std::uint64_t links_version_ = 1;
  std::unordered_map<std::string, std::unique_ptr<OutTopic>, TextHash, std::equal_to<>> topics_;
  OutTopic* last_topic_ = nullptr;  // into topics_: most emits repeat the name of the one before
  std::unordered_map<std::string, std::uint64_t> topics_received_;
  std::uint32_t next_topic_ = 1;
  std::size_t queued_bytes_ = 0;    // of all links that are not lost
  std::uint64_t undelivered_ = 0;   // events for incarnations that ended
  std::uint64_t gaps_of_past_ = 0;  // told by them
  mutable int waiting_ = 0;         // threads in changed_.wait
  bool flush_requested_ = false;
  io::TimePoint last_send_{};
  std::uint64_t sends_ = 0;
  std::uint64_t sends_flushed_ = 0;
  bool welcoming_ = true;
  bool closing_ = false;
  bool closed_ = false;
  bool is_ready_ = false;
  bool join_cancelled_ = false;
  std::chrono::steady_clock::time_point join_deadline_{};
  Status join_error_;
  std::size_t unjoined_dialers_ = 0;
  bool relay_open_ = false;                         // a hub that relays has all its leaves
  std::map<std::string, std::string> dial_errors_;  // by address: the last reason
  std::size_t open_connections_ = 0;                // that peers may still read from
  std::set<std::string> own_roles_;
  std::set<std::string> task_labels_;
  bool labels_announced_ = false;  // peers may have some of ours
  std::set<int> departed_;         // node ids that left; they count as having been here

  // Loop only.
  std::unique_ptr<io::Listener> listener_;
  std::unique_ptr<io::Listener> loopback_listener_;
  std::vector<std::shared_ptr<Dialer>> dialers_;
  std::vector<std::shared_ptr<Connection>> greeting_;  // handshake not over
  std::vector<std::shared_ptr<Connection>> ending_;    // the peer is still reading
  std::unique_ptr<io::Timer> tick_timer_;
  std::unique_ptr<io::Timer> ready_timer_;
  std::unique_ptr<io::Timer> flush_timer_;
  // The news of a death can overtake the dead one's last words, with which its link came up.
  std::set<int> died_unlinked_;
  std::set<int> died_for_good_;  // whose links, if they had last words, end with them
  std::set<int> dismissed_;      // still connected, see dismiss()
  std::uint64_t next_connection_ = 1;
  std::uint64_t last_attachment_ = 0;
  std::optional<io::TimePoint> complained_at_;                  // about a stranger
  std::uint64_t complaints_kept_ = 0;                           // since then
  std::string incoming_refusal_;                                // the last, and whose
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // expires with stop_on_loop()
};

}  // namespace divisi::mesh
