//! MicroTx/MacroTx: record format, group commit, watermark, recovery scan.
