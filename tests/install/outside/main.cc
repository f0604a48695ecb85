// A stranger's program: a task with a typed event, and an error of the library caught by its type.
#include <divisi/task.h>
#include <iostream>
#include <string>

int main() {
  std::string heard;
  {
    const auto running = divisi::task.start();
    divisi::task.on("greeting", [&](const std::string& text, int number) {
      heard = text + " " + std::to_string(number);
    });
    divisi::task.use([](divisi::Context&) { divisi::task.emit("greeting", "hello", 42); });
    divisi::task.run(1);
  }
  try {
    divisi::task.emit("greeting", "too late", 0);
  } catch (const divisi::UsageError&) {
    std::cout << "outside heard: " << heard << "\n";
  }
}
