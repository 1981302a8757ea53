//! Who runs next: inode queues, policies, accounting. Pure data structures.
