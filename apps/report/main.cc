#include "trial_report/report_program.h"

int main(int argc, char** argv) {
  return divisi::trial_report::report_main(argc, argv);
}
