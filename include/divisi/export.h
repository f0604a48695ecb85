// What libdivisi.so shows to the outside. Everything else is hidden.
#pragma once

// Marks what programs and packages may link.
#define DIVISI_API __attribute__((visibility("default")))

// Raised with every change that an already compiled package could notice. ditask
// compares it before it enters a package and names both versions if they differ.
#define DIVISI_ABI_VERSION 3
