//! Bundles of flow-mods (ONF extension 230): collected, and then carried out together or not at
//! all.
//!
//! Every bundle is carried out as a whole, in order, under one lock: what is asked for without
//! OFPBF_ATOMIC or OFPBF_ORDERED is thereby had as well. The errors are those of Open vSwitch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tollgate_openflow::bundle::{BundleAdd, BundleCommand, BundleControl};
use tollgate_openflow::message::HEADER_BYTES;
use tollgate_openflow::{ErrorCode, FlowMod, Message};

use super::recording::{Budget, Recording};
use super::requests::refusal;
use super::session::{Session, xid};
use super::stream::{Messages, Next};
use crate::limits::BUNDLES_MAX;
use crate::pipeline::FlowError;

/// The bundles of a connection.
#[derive(Debug)]
pub(super) struct Bundles {
    by_id: HashMap<u32, Bundle>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    state: State,
    messages: Recording,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    /// A message was refused, so that the bundle cannot be carried out.
    Failed,
}

impl Bundles {
    /// None, with room for `budget`.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { by_id: HashMap::new(), budget }
    }

    fn open(&mut self, control: &BundleControl) -> Result<(), FlowError> {
        if self.by_id.remove(&control.bundle_id).is_some() {
            return Err(refusal(ErrorCode::OFPBFC_BAD_ID, "the bundle is open already"));
        }
        self.begin(control.bundle_id, control.flags).map(|_| ())
    }

    fn begin(&mut self, id: u32, flags: u16) -> Result<&mut Bundle, FlowError> {
        let count = self.by_id.len();
        match self.by_id.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(_) if count >= BUNDLES_MAX => {
                Err(refusal(ErrorCode::OFPBFC_OUT_OF_BUNDLES, "too many bundles are open"))
            }
            Entry::Vacant(place) => {
                let messages = Recording::new(Arc::clone(&self.budget));
                Ok(place.insert(Bundle { flags, state: State::Open, messages }))
            }
        }
    }

    /// The bundle, which is forgotten if it is not as `flags` and the order of messages want it.
    fn expect_open(&mut self, id: u32, flags: u16) -> Result<&mut Bundle, FlowError> {
        let refused = match self.by_id.get(&id) {
            None => Some(NO_BUNDLE),
            Some(bundle) if bundle.state == State::Closed => {
                Some(refusal(ErrorCode::OFPBFC_BUNDLE_CLOSED, "the bundle is closed"))
            }
            Some(bundle) if bundle.flags != flags => Some(OTHER_FLAGS),
            Some(_) => None,
        };
        if let Some(error) = refused {
            self.by_id.remove(&id);
            return Err(error);
        }
        self.by_id.get_mut(&id).ok_or(NO_BUNDLE)
    }

    /// Adds a message; one to a bundle that is not there opens it.
    fn add(&mut self, id: u32, flags: u16, message: &[u8]) -> Result<(), FlowError> {
        self.begin(id, flags)?;
        let bundle = self.expect_open(id, flags)?;
        if bundle.state == State::Open && bundle.messages.push(message).is_ok() {
            return Ok(());
        }
        // What is left out would be missing, so nothing of it will be carried out.
        let budget = Arc::clone(&self.budget);
        self.by_id.entry(id).and_modify(|bundle| {
            bundle.state = State::Failed;
            bundle.messages = Recording::new(budget);
        });
        Err(refusal(ErrorCode::OFPBFC_MSG_TOO_MANY, "there is no room for so large a bundle"))
    }

    fn close(&mut self, control: &BundleControl) -> Result<(), FlowError> {
        let bundle = self.expect_open(control.bundle_id, control.flags)?;
        if bundle.state == State::Open {
            bundle.state = State::Closed;
        }
        Ok(())
    }

    /// What is to be carried out. Whatever becomes of it, the bundle is gone.
    fn take(&mut self, control: &BundleControl) -> Result<Recording, FlowError> {
        let bundle = self.by_id.remove(&control.bundle_id).ok_or(NO_BUNDLE)?;
        if bundle.flags != control.flags {
            Err(OTHER_FLAGS)
        } else if bundle.state == State::Failed {
            Err(refusal(ErrorCode::OFPBFC_MSG_FAILED, "a message could not be added"))
        } else {
            Ok(bundle.messages)
        }
    }
}

const NO_BUNDLE: FlowError = refusal(ErrorCode::OFPBFC_BAD_ID, "there is no bundle of this number");
const OTHER_FLAGS: FlowError =
    refusal(ErrorCode::OFPBFC_BAD_FLAGS, "the bundle was opened with other flags");

impl Session {
    /// Carries out a bundle control message and says what to answer.
    pub(super) fn bundle_control(&mut self, control: BundleControl) -> Result<Message, FlowError> {
        let reply = match control.command {
            BundleCommand::OpenRequest => {
                self.bundles.open(&control)?;
                BundleCommand::OpenReply
            }
            BundleCommand::CloseRequest => {
                self.bundles.close(&control)?;
                BundleCommand::CloseReply
            }
            BundleCommand::CommitRequest => {
                let messages = self.bundles.take(&control)?;
                self.commit(&messages)?;
                BundleCommand::CommitReply
            }
            BundleCommand::DiscardRequest => {
                self.bundles.by_id.remove(&control.bundle_id).ok_or(NO_BUNDLE)?;
                BundleCommand::DiscardReply
            }
            BundleCommand::OpenReply
            | BundleCommand::CloseReply
            | BundleCommand::CommitReply
            | BundleCommand::DiscardReply => {
                return Err(refusal(ErrorCode::OFPBFC_BAD_TYPE, "only a switch sends this"));
            }
        };
        let BundleControl { bundle_id, .. } = control;
        Ok(Message::BundleControl(BundleControl { bundle_id, command: reply, flags: 0 }))
    }

    /// Adds a message to a bundle; `bytes` is the one that says so.
    pub(super) fn bundle_add(&mut self, add: &BundleAdd, bytes: &[u8]) -> Result<(), FlowError> {
        if !matches!(*add.message, Message::FlowMod(_)) {
            return Err(refusal(ErrorCode::OFPBFC_MSG_UNSUP, "only flow-mods are bundled here"));
        }
        let bytes = bytes.get(BUNDLE_ADD_BYTES..).unwrap_or_default();
        // Properties may follow it.
        let Next::Message(message) = Messages::new(bytes, 0).next() else {
            return Err(refusal(ErrorCode::OFPBFC_MSG_BAD_LEN, "the bundled message is not whole"));
        };
        let message = bytes.get(message).unwrap_or_default();
        self.bundles.add(add.bundle_id, add.flags, message)
    }

    /// Carries out all messages of a bundle, or none. The one at fault is answered with its error.
    fn commit(&mut self, messages: &Recording) -> Result<(), FlowError> {
        let mut flow_mods = messages.iter().filter_map(flow_mod);
        let Err((index, error)) = self.bridge.flow_mods_atomic(&mut flow_mods) else {
            return Ok(());
        };
        let message = messages.iter().nth(index).unwrap_or_default();
        self.refuse(xid(message), error, message);
        Err(refusal(ErrorCode::OFPBFC_MSG_FAILED, "a message of the bundle was refused"))
    }
}

/// What was decoded before it was recorded.
fn flow_mod(message: &[u8]) -> Option<FlowMod> {
    match Message::decode(message) {
        Ok((_, Message::FlowMod(flow_mod))) => Some(*flow_mod),
        _ => None,
    }
}

/// What comes before the bundled message: the header, experimenter and its type, bundle id, padding
/// and flags.
const BUNDLE_ADD_BYTES: usize = HEADER_BYTES + 8 + 8;
