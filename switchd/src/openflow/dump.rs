//! Dumps of flows, a chunk at a time: a million flows are never held a second time, neither as
//! values nor as bytes.

use tollgate_openflow::Message;
use tollgate_openflow::multipart::{FlowStats, FlowStatsRequest, MultipartReply};

use super::FlowCursor;
use super::session::Session;
use crate::limits::FLOWS_PER_CHUNK;
use crate::pipeline::FlowError;

/// A dump that has begun.
pub(super) struct FlowDump {
    xid: u32,
    cursor: Box<dyn FlowCursor>,
    /// What is sent next; that it is empty before the end shows that there is no more after it.
    next: Vec<FlowStats>,
}

impl Session {
    pub(super) fn begin_dump(
        &mut self,
        xid: u32,
        request: &FlowStatsRequest,
    ) -> Result<(), FlowError> {
        let mut cursor = self.bridge.flows(request)?;
        let next = cursor.next(FLOWS_PER_CHUNK);
        self.dump = Some(FlowDump { xid, cursor, next });
        Ok(())
    }

    /// Answers with the next chunk.
    pub(super) fn continue_dump(&mut self) {
        let Some(mut dump) = self.dump.take() else { return };
        let after = dump.cursor.next(FLOWS_PER_CHUNK);
        let more = !after.is_empty();
        let reply = MultipartReply::Flow(std::mem::replace(&mut dump.next, after));
        self.answer(dump.xid, &Message::MultipartReply { reply, more });
        if more {
            self.dump = Some(dump);
        }
    }
}
