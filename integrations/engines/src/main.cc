// weldfs-drive-rocksdb and weldfs-drive-leveldb: one workload on one database, one JSON object on standard output.
//
// Exit codes: 0; 1 something that was read is wrong, or the engine failed; 2 the arguments make no sense; 3 the database
// could not be opened.
#include "arguments.h"
#include "workloads.h"

int main(int argc, char** argv) { return drive::RunWorkload(drive::Arguments::Parse(argc, argv)); }
