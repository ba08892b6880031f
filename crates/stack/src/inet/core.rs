//! State that all protocols on a stack's Internet layer share.
//!
//! Does not depend on the protocols above. Tests: those of its parts.

use std::ops::Deref;

use sockeye_sync::facade::OnceLock;

use crate::inet::input::Input;
use crate::inet::ip::Ip;
use crate::inet::link::Links;
use crate::inet::netif::loopback::Loopback;
use crate::inet::netif::table::Netifs;
use crate::inet::protocols::Protocols;
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
    protocols: OnceLock<Box<dyn Protocols>>,
}

impl Core {
    pub fn new(env: Env) -> Self {
        Self {
            loopback: Loopback::new(env.config.loopback_mtu, env.config.loopback_encode),
            netifs: Netifs::new(),
            input: Input::new(),
            ip: Ip::new(),
            links: Links::new(),
            protocols: OnceLock::new(),
            env,
        }
    }

    /// Sets the layer above. Once, before anything else is done.
    pub fn set_protocols(&self, protocols: Box<dyn Protocols>) {
        let _ = self.protocols.set(protocols);
    }

    /// The protocols above.
    #[inline]
    pub fn protocols(&self) -> &dyn Protocols {
        self.protocols.get().expect("each stack has set it").as_ref()
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
