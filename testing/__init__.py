"""What `./test` does.

  __main__.py   the command line: levels, tiers, slices
  tiers.py      the tiers: what each runs, and its sizes in the gate and in full
  build.py      the one debug build that every test runs, and release; which test programs came out of it
  programs.py   runs test programs side by side and reads what they say
  states.py     crash states through `weldfs crash`, judged by their counts
  counts.py     machine instructions, counted by callgrind, against their bounds
  road.py       the same of a command's whole way through the device, with its locks, allocations, copies and code
  follow.py     that the files of three commands, as ARCHITECTURE lists them, are those that run
  quick.py      which crates a change touches
  soak.py       runs for hours, with a state on disk
  cases.py      what the tests of plug-ins share: cases one by one, images, devices and programs of each
  report.py     times, skips, failures, the summary

Nothing here gates on time: `summary` shows minutes, tests count.
"""
