// The workloads of db_bench and of YCSB over a Store, in programs of their own: every value that is read is checked.
#pragma once

#include <memory>
#include <string>

#include "arguments.h"
#include "clock.h"
#include "store.h"

namespace drive {

// load        every key once, in an order without one; what the reading workloads and YCSB need
// fillseq     every key once, ascending
// fillrandom  keys at random; fillsync the same, each put durable; overwrite the same over what is there
// readrandom  a value of a key at random; readwhilewriting the same beside one more thread that puts at random
// seekrandom  an iterator made, set to a key at random, and its value read
// ycsb-a      half reads, half updates          ycsb-b  95 % reads, 5 % updates
// ycsb-c      reads                             ycsb-d  95 % reads of what was inserted last, 5 % inserts
// ycsb-e      95 % scans of 1 to 100 records, 5 % inserts
// ycsb-f      half reads, half reads with an update of what was read
// check       every key once, by iterator: the loaded ones must all be there
// damage      puts values that are wrong at every tenth key: so that one can see that this is found
//
// Runs one of them; the program's exit code.
int RunWorkload(Arguments arguments);

}  // namespace drive
