#include "runtime/labels.h"
