//! What concerns the device and not its files: settings and tenants.
//!
//! Errors of all calls: ENODEV when the device is gone, EPERM where only root and the device's owner may ask.

use crate::client::Client;
use std::io;
use weldfs_ciscops::Errno;
use weldfs_ciscops::attach::{Reply, Request, Token};

impl Client {
    /// Changes a setting of the device, `key=value`; in force from its next decision on. EINVAL: not of that form;
    /// ENOENT: no such key; ERANGE: a value it cannot have; EPERM.
    pub fn tune(&self, setting: &str) -> io::Result<()> {
        // An empty request would ask for the list.
        if setting.is_empty() {
            return Err(Errno::INVAL.into());
        }
        self.text(&Request::Tune(setting.into())).map(drop)
    }

    /// All settings with values and ranges, as a JSON array.
    pub fn settings_json(&self) -> io::Result<String> {
        self.json(&Request::Tune(Vec::new()))
    }

    /// The device's tenants with weights, limits and usage, as a JSON array.
    pub fn tenants_json(&self) -> io::Result<String> {
        self.json(&Request::Tenants)
    }

    /// The token of the tenant `name`. ENOENT: no such tenant; EOPNOTSUPP: it has none; EPERM.
    pub fn tenant_token(&self, name: &str) -> io::Result<Token> {
        match self.control(&Request::Token(name.into()))? {
            Reply::Token(token) => Ok(token),
            _ => Err(Errno::PROTO.into()),
        }
    }

    fn text(&self, request: &Request) -> io::Result<Vec<u8>> {
        match self.control(request)? {
            Reply::Text(text) => Ok(text),
            _ => Err(Errno::PROTO.into()),
        }
    }

    fn json(&self, request: &Request) -> io::Result<String> {
        String::from_utf8(self.text(request)?).map_err(|_| Errno::PROTO.into())
    }
}
