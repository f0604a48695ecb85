// ModelSender: gives the model to whoever listens, and the last one again to peers that join or
// come back as another process, and to who asks for it.
#pragma once

#include "divisi/exchange.h"
#include "divisi/task.h"
#include "divisi/value.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace divisi::runtime {

// The event by which a receiver asks for the last model, with its node id, and that of the answer.
// The answer has a name of its own because it is no news to who has heard a model already.
std::string request_of(const std::string& event);
std::string answer_of(const std::string& event);

// The parameters as a message carries them, and back. Throws PayloadError naming the parameter.
Value pack_model(const std::map<std::string, Tensor>& model);
std::map<std::string, Tensor> unpack_model(const Value& message);

// Threads: send() from one at a time; requests come by the loops of the task and the router.
class ModelSender : public std::enable_shared_from_this<ModelSender> {
 public:
  static std::shared_ptr<ModelSender> create(Task& owner, std::string event);
  ~ModelSender();
  ModelSender(const ModelSender&) = delete;
  ModelSender& operator=(const ModelSender&) = delete;

  void send(Value message);

 private:
  ModelSender(Task& owner, std::string event) : task_(owner), event_(std::move(event)) {}
  void listen();
  void send_again(const std::string& event, int node);

  // Constant after construction and listen().
  Task& task_;
  const std::string event_;
  std::map<std::string, ListenerId> peer_listeners_;  // of the router

  std::mutex mutex_;
  Value last_;  // guarded by mutex_; nil before the first
};

}  // namespace divisi::runtime
