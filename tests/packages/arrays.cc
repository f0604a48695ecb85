// The C++ side of a job whose other nodes are written in Python: sends each of them an array and
// compares what comes back, and sends back, reversed, the arrays they send.
#include "divisi/divisi.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

divisi::Tensor counting(std::int64_t rows, std::int64_t columns) {
  std::vector<double> elements(static_cast<std::size_t>(rows * columns));
  std::iota(elements.begin(), elements.end(), 0.5);
  return divisi::Tensor::copy_of<double>({rows, columns}, elements);
}

divisi::Tensor reversed(const divisi::Tensor& tensor) {
  divisi::Tensor copy = tensor;
  copy.data = divisi::Buffer::copy_of(tensor.data.bytes());
  std::reverse(copy.data.mutable_data(), copy.data.mutable_data() + copy.data.size());
  return copy;
}

int main() {
  divisi::Task& task = divisi::task;
  const auto running = task.start();
  const divisi::Tensor large = counting(500, 400);  // travels beside the message
  const divisi::Tensor small = counting(2, 3);      // inside it
  std::atomic<int> wrong{0};
  std::atomic<int> done{0};
  task.on("from_python", [&](int node, const divisi::Tensor& tensor) {
    task.emit("reversed", divisi::Target::to_node(node), reversed(tensor));
  });
  task.on("echo", [&](int node, const divisi::Tensor& first, const divisi::Tensor& second) {
    if (!(first == large) || !(second == small)) ++wrong;
    std::printf("node %d sent both arrays back\n", node);
  });
  task.on("hello",
          [&](int node) { task.emit("from_cpp", divisi::Target::to_node(node), large, small); });
  task.on("done", [&](int) {
    if (++done == 2) task.emit("enough", divisi::only_local);
  });
  task.wait_for("enough", {.timeout = std::chrono::seconds(60)});
  std::printf("%d nodes done, %d wrong\n", done.load(), wrong.load());
  return done == 2 && wrong == 0 ? 0 : 1;
}

}  // namespace
DIVISI_MAIN_AS("main", main)
