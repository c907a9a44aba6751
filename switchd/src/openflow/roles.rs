//! What a controller is to its switch (OpenFlow 1.3.5, sections 6.3.4 and 7.3.9).

use tollgate_openflow::controller::{
    self, OFPCR_ROLE_EQUAL, OFPCR_ROLE_MASTER, OFPCR_ROLE_NOCHANGE, OFPCR_ROLE_SLAVE,
};
use tollgate_openflow::multipart::MultipartRequest;
use tollgate_openflow::{ErrorCode, Message};

use super::hub::Stale;
use super::requests::refusal;
use super::session::Session;
use crate::pipeline::FlowError;

/// A controller's role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// May change everything, beside others.
    #[default]
    Equal,
    /// May change everything, and is the only one of this role.
    Master,
    /// Reads only.
    Slave,
}

impl Role {
    /// As JSON-RPC names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Master => "master",
            Self::Slave => "slave",
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Equal => OFPCR_ROLE_EQUAL,
            Self::Master => OFPCR_ROLE_MASTER,
            Self::Slave => OFPCR_ROLE_SLAVE,
        }
    }
}

/// What is answered in place of a generation id before there was any (as in Open vSwitch).
const NO_GENERATION: u64 = u64::MAX;

impl Session {
    pub(super) fn role_request(&self, request: controller::Role) -> Result<Message, FlowError> {
        let audience = self.membership.audience();
        let wanted = match request.role {
            OFPCR_ROLE_NOCHANGE => None,
            OFPCR_ROLE_EQUAL => Some(Role::Equal),
            OFPCR_ROLE_MASTER => Some(Role::Master),
            OFPCR_ROLE_SLAVE => Some(Role::Slave),
            _ => return Err(refusal(ErrorCode::OFPRRFC_BAD_ROLE, "there is no such role")),
        };
        if let Some(role) = wanted {
            audience.assign(self.peer(), role, request.generation_id).map_err(|Stale| {
                refusal(ErrorCode::OFPRRFC_STALE, "a later generation id has been seen")
            })?;
        }
        Ok(Message::RoleReply(controller::Role {
            role: self.peer().settings().role.number(),
            generation_id: audience.generation_id().unwrap_or(NO_GENERATION),
        }))
    }

    /// Refuses to a slave what only others may.
    pub(super) fn check_role(&self, message: &Message) -> Result<(), FlowError> {
        let changes = match message {
            Message::FlowMod(_)
            | Message::PacketOut(_)
            | Message::GroupMod(_)
            | Message::PortMod(_)
            | Message::MeterMod(_)
            | Message::BundleControl(_)
            | Message::BundleAdd(_) => true,
            Message::MultipartRequest(MultipartRequest::TableFeatures(changes)) => {
                !changes.is_empty()
            }
            _ => false,
        };
        if changes { self.check_may_change() } else { Ok(()) }
    }

    /// Refuses if the connection is a slave's.
    pub(super) fn check_may_change(&self) -> Result<(), FlowError> {
        match self.peer().settings().role {
            Role::Slave => Err(refusal(ErrorCode::OFPBRC_IS_SLAVE, "a slave may not change this")),
            Role::Equal | Role::Master => Ok(()),
        }
    }
}
