//! Which cards there are: from sysfs, where reading loads no library and disturbs no card.

use std::fs;
use std::io;
use std::path::Path;

/// AMD's (Xilinx') number among the makers of PCI devices.
const VENDOR: &str = "0x10ee";
/// Drivers of XRT's that give a program access: of PCIe cards, and of chips with processors beside the fabric.
const USER: [&str; 2] = ["xocl", "zocl"];
/// The driver of a card's other function, which only manages it.
const MANAGEMENT: &str = "xclmgmt";

/// What can be done with a function of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Kernels can be loaded: a driver for users has it.
    Ready,
    /// It manages a card, and runs nothing.
    Management,
    /// No driver has it, or one that is not of XRT.
    Undriven,
}

/// One function of a card.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Card {
    /// Its address as sysfs names it: `0000:65:00.1`.
    pub address: String,
    /// Which of the maker's devices: `0x5001`; empty where sysfs does not say.
    pub model: String,
    /// The driver that has it.
    pub driver: Option<String>,
    /// What that makes of it.
    pub state: State,
}

/// The functions of cards of this maker, by address. `sys` is where sysfs is mounted: `/sys`. None is no error.
///
/// # Errors
/// sysfs cannot be read.
pub fn cards(sys: &Path) -> io::Result<Vec<Card>> {
    let mut all = Vec::new();
    for folder in entries(&sys.join("bus/pci/devices"))? {
        if text(&folder.join("vendor")).as_deref() != Some(VENDOR) {
            continue;
        }
        let driver = fs::read_link(folder.join("driver")).ok().map(|d| last(&d));
        let state = match driver.as_deref() {
            Some(driver) if USER.contains(&driver) => State::Ready,
            Some(MANAGEMENT) => State::Management,
            _ => State::Undriven,
        };
        let model = text(&folder.join("device")).unwrap_or_default();
        all.push(Card { address: last(&folder), model, driver, state });
    }
    // A chip with processors has its fabric on no bus that can be searched: what its driver has is listed there.
    for device in entries(&sys.join("bus/platform/drivers/zocl-drm"))? {
        if device.is_symlink() && device.join("driver").exists() {
            let driver = Some("zocl".to_owned());
            all.push(Card { address: last(&device), model: String::new(), driver, state: State::Ready });
        }
    }
    all.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(all)
}

/// What is in a folder; one that is not there has nothing.
fn entries(folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found?.map(|entry| Ok(entry?.path())).collect(),
    }
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn function(sys: &Path, address: &str, vendor: &str, driver: Option<&str>) {
        let folder = sys.join("bus/pci/devices").join(address);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(folder.join("device"), "0x5001\n").unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../../../bus/pci/drivers/{driver}"), folder.join("driver")).unwrap();
        }
    }

    #[test]
    fn a_machine_without_pci_has_no_card() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(cards(sys.path()).unwrap(), []);
    }

    #[test]
    fn a_card_is_what_its_maker_and_driver_say() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        function(sys, "0000:65:00.1", VENDOR, Some("xocl"));
        function(sys, "0000:65:00.0", VENDOR, Some("xclmgmt"));
        function(sys, "0000:66:00.0", VENDOR, None);
        function(sys, "0000:67:00.0", VENDOR, Some("vfio-pci"));
        function(sys, "0000:00:01.0", "0x8086", Some("xocl"));
        let platform = sys.join("bus/platform/drivers/zocl-drm");
        fs::create_dir_all(sys.join("devices/platform/axi:zyxclmm_drm/driver")).unwrap();
        fs::create_dir_all(&platform).unwrap();
        fs::write(platform.join("bind"), "").unwrap();
        symlink(sys.join("devices/platform/axi:zyxclmm_drm"), platform.join("axi:zyxclmm_drm")).unwrap();
        let found = cards(sys).unwrap();
        let found: Vec<_> = found.iter().map(|c| (c.address.as_str(), c.driver.as_deref(), c.state)).collect();
        let expected = [
            ("0000:65:00.0", Some("xclmgmt"), State::Management),
            ("0000:65:00.1", Some("xocl"), State::Ready),
            ("0000:66:00.0", None, State::Undriven),
            ("0000:67:00.0", Some("vfio-pci"), State::Undriven),
            ("axi:zyxclmm_drm", Some("zocl"), State::Ready),
        ];
        assert_eq!(found, expected);
    }
}
