//! What the Internet layer of a stack shares among all protocols.
//!
//! Must not know the protocols above. Tests: those of its parts.

use std::ops::Deref;

use crate::inet::input::Input;
use crate::inet::ip::Ip;
use crate::inet::link::Links;
use crate::inet::netif::loopback::Loopback;
use crate::inet::netif::table::Netifs;
use crate::rt::env::Env;
use crate::rt::handle::Layer;

/// See the module's head.
pub(crate) struct Core {
    env: Env,
    pub loopback: Loopback,
    pub netifs: Netifs,
    pub input: Input,
    pub ip: Ip,
    pub links: Links,
}

impl Core {
    pub fn new(env: Env) -> Self {
        Self {
            loopback: Loopback::new(env.config.loopback_mtu, env.config.loopback_encode),
            netifs: Netifs::new(),
            input: Input::new(),
            ip: Ip::new(),
            links: Links::new(),
            env,
        }
    }
}

impl Deref for Core {
    type Target = Env;
    #[inline]
    fn deref(&self) -> &Env {
        &self.env
    }
}

impl Layer for Core {
    const AT: usize = 1;
}
