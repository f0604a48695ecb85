// Everything of the runtime in one include.
#pragma once

#include "divisi/barrier.h"
#include "divisi/buffer.h"
#include "divisi/checkpoint.h"
#include "divisi/context.h"
#include "divisi/delivery.h"
#include "divisi/error.h"
#include "divisi/event.h"
#include "divisi/exchange.h"
#include "divisi/main.h"
#include "divisi/middleware.h"
#include "divisi/parallel.h"
#include "divisi/payload.h"
#include "divisi/progress.h"
#include "divisi/step_timer.h"
#include "divisi/task.h"
#include "divisi/writer.h"
