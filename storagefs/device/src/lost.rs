//! Kernels that are lost, in the device's log: which, in which slot, whose, and why. Of each tenant there are a few
//! lines in ten seconds; the card's status has the last one for the tenant itself.

use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;

use weldfs_session::tenants::Tenant;

/// Logs a fault, if it is that its kernel was lost; `slot` where it had one.
pub(super) fn note(tenant: &Tenant, kernel: &str, slot: Option<usize>, fault: &Fault) {
    let Fault::Lost(why) = fault else { return };
    if !tenant.log.permits() {
        return;
    }
    let slot = slot.map_or_else(String::new, |slot| format!(" in slot {slot}"));
    // What a kernel says of itself is no part of the log's form.
    let why = why.escape_debug();
    tracing::warn!("kernel {kernel}{slot} was lost for tenant {}: {why}", tenant.name);
}

/// The same of a kernel that did not begin.
pub(super) fn note_opening(tenant: &Tenant, kernel: &str, error: &CardError) {
    if let CardError::Fault(fault) = error {
        note(tenant, kernel, None, fault);
    }
}
