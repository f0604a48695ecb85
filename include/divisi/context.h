// Context: what the middleware of one iteration share.
//
//   struct MyContext : divisi::Context {
//     int env_step = 0;
//     double loss = 0;
//     DIVISI_KEEP(env_step)                        // survives renewals
//     DIVISI_CONTEXT(MyContext, env_step, loss)    // all fields, by name
//   };
//
// At the end of an iteration the task replaces its context by ctx.renew(): a new object of the
// same class with its defaults, in which only the kept fields have their old values. The default
// constructor is the place for whatever else a fresh context needs. Fields that are not listed in
// DIVISI_CONTEXT have their default after each renewal and do not travel.
//
// Threads: a context has no lock. In async mode middleware that touch the same field synchronise
// (UseOptions::lock).
#pragma once

#include "divisi/coder.h"
#include "divisi/detail/task_attribute.h"
#include "divisi/detail/task_fields.h"
#include "divisi/export.h"

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi {

class DIVISI_API Context {
 public:
  using divisi_context_self = Context;

  std::int64_t total_step = 0;  // the index of the iteration, from 0

  Context() = default;
  Context(const Context&) = default;
  Context& operator=(const Context&) = default;
  virtual ~Context();

  // The named fields and attributes are copied by the next renew(). A name that does not exist is
  // harmless. What is kept at run time is kept for one renewal; DIVISI_KEEP, or keep() in the
  // constructor, is for ever.
  template <class... Names>
  void keep(const Names&... names) {
    (kept_.insert(std::string(names)), ...);
  }
  // The names that the next renew() copies.
  const std::set<std::string>& kept() const noexcept { return kept_; }

  // The context of the next iteration: defaults, kept fields, total_step plus one. Throws
  // UsageError when the class of this object has no DIVISI_CONTEXT of its own.
  std::shared_ptr<Context> renew() const;

  // By name: fields that DIVISI_CONTEXT lists, total_step, and attributes added at run time. A
  // name that is no field becomes an attribute, which is not kept unless asked for.
  bool has_attr(std::string_view name) const;
  // Throws UsageError when the value does not fit the field.
  template <class T>
  void set(std::string_view name, T&& value) {
    set_attribute(name, Attribute(std::forward<T>(value)));
  }
  // Throws UsageError: no such name, or another type (naming both).
  template <class T>
  T& get(std::string_view name) {
    if (void* field = find_field(name, typeid(T)); field != nullptr) {
      return *static_cast<T*>(field);
    }
    return attribute(name).template get<T>();
  }
  void remove(std::string_view name);  // an attribute added at run time

  // A map of total_step, the fields, the attributes, and `_kept`. Throws UsageError naming a field
  // whose type cannot travel.
  void pack(Packer& packer) const;
  // Takes over what pack() wrote; names that are no fields here become attributes.
  void unpack(Unpacker& unpacker);

 private:
  // DIVISI_CONTEXT overrides both.
  virtual std::shared_ptr<Context> divisi_fresh() const;

  void set_attribute(std::string_view name, Attribute value);
  Attribute& attribute(std::string_view name);
  void* find_field(std::string_view name, const std::type_info& type);
  std::vector<detail::ContextField> fields() const;

  std::set<std::string> kept_;
  std::map<std::string, Attribute, std::less<>> attributes_;

 protected:
  virtual void divisi_visit(detail::FieldVisitor& visitor);
};

// Inside a class derived from Context, or from such a class: lists its own fields. Fields of the
// base are included.
#define DIVISI_CONTEXT(Class, ...)                                                              \
 public:                                                                                        \
  using divisi_context_base = typename Class::divisi_context_self;                              \
  using divisi_context_self = Class;                                                            \
                                                                                                \
 protected:                                                                                     \
  void divisi_visit([[maybe_unused]] ::divisi::detail::FieldVisitor& divisi_visitor) override { \
    divisi_context_base::divisi_visit(divisi_visitor);                                          \
    __VA_OPT__(DIVISI_DETAIL_EXPAND(DIVISI_DETAIL_VISIT_EACH(__VA_ARGS__)))                     \
  }                                                                                             \
                                                                                                \
 private:                                                                                       \
  std::shared_ptr<::divisi::Context> divisi_fresh() const override {                            \
    return std::make_shared<Class>();                                                           \
  }                                                                                             \
                                                                                                \
 public:

// Inside such a class: the names that every object keeps. Once in a class.
#define DIVISI_KEEP(...) \
  [[no_unique_address]] ::divisi::detail::KeepNames divisi_keep_{*this, #__VA_ARGS__};

namespace detail {
struct DIVISI_API KeepNames {
  KeepNames(Context& ctx, std::string_view comma_separated);
};
}  // namespace detail

// A context travels in an event as itself.
template <std::derived_from<Context> T>
struct Coder<T> {
  static std::string name() { return detail::demangled(typeid(T)); }
  static void pack(Packer& packer, const T& ctx) { ctx.pack(packer); }
  static T unpack(Unpacker& unpacker) {
    T ctx;
    ctx.unpack(unpacker);
    return ctx;
  }
};

// What the reinforcement-learning middleware share when data come from an environment.
struct DIVISI_API OnlineRLContext : Context {
  std::int64_t env_step = 0;                     // steps of all environments so far; kept
  std::int64_t env_episode = 0;                  // episodes so far; kept
  std::int64_t train_iter = 0;                   // updates of the model so far; kept
  Attribute train_data;                          // the batch to train with
  Attribute train_output;                        // what the update returned: losses and the like
  std::map<std::string, Value> collect_kwargs;   // for the policy that collects
  Attribute obs;                                 // observations that wait for an action
  Attribute action;                              // actions to be taken
  Attribute inference_output;                    // what the policy said about `obs`
  Attribute trajectories;                        // transitions that were collected
  Attribute episodes;                            // the same as whole episodes
  std::vector<std::int64_t> trajectory_end_idx;  // where trajectories end in `trajectories`
  double eval_value = -std::numeric_limits<double>::infinity();  // of the latest evaluation
  std::int64_t last_eval_iter = -1;  // train_iter of the latest evaluation; kept
  double last_eval_value = -std::numeric_limits<double>::infinity();  // its result; kept
  std::map<std::string, Value> eval_output;                           // its details
  std::map<std::string, Value> info_for_logging;                      // for a logger at the end
  std::string wandb_url;                                              // of the run's page; kept

  OnlineRLContext();

  DIVISI_CONTEXT(OnlineRLContext, env_step, env_episode, train_iter, train_data, train_output,
                 collect_kwargs, obs, action, inference_output, trajectories, episodes,
                 trajectory_end_idx, eval_value, last_eval_iter, last_eval_value, eval_output,
                 info_for_logging, wandb_url)
};

// The same for a fixed data set.
struct DIVISI_API OfflineRLContext : Context {
  std::int64_t trained_env_step = 0;  // transitions trained with so far; kept
  std::int64_t train_epoch = 0;       // passes over the data so far
  std::int64_t train_iter = 0;        // updates of the model so far; kept
  Attribute train_data;               // the batch to train with
  Attribute train_output;             // what the update returned: losses and the like
  double eval_value = -std::numeric_limits<double>::infinity();  // of the latest evaluation
  std::int64_t last_eval_iter = -1;  // train_iter of the latest evaluation; kept
  double last_eval_value = -std::numeric_limits<double>::infinity();  // its result; kept
  std::map<std::string, Value> eval_output;                           // its details
  std::map<std::string, Value> info_for_logging;                      // for a logger at the end
  std::string wandb_url;                                              // of the run's page; kept

  OfflineRLContext();

  DIVISI_CONTEXT(OfflineRLContext, trained_env_step, train_epoch, train_iter, train_data,
                 train_output, eval_value, last_eval_iter, last_eval_value, eval_output,
                 info_for_logging, wandb_url)
};

}  // namespace divisi
