//! The contract of host and device: opcodes, queue entries, rings, pool, attach messages, decoder, op catalogue.
