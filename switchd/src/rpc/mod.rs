//! JSON-RPC 2.0 on a unix stream socket: requests are concatenated or newline-delimited, one
//! reply line each. Memory per connection is bounded whatever a peer sends or does not read.

mod dispatch;
mod error;
mod framing;
mod params;
mod server;

pub use dispatch::{Handler, ReplyWriter, respond};
pub use error::RpcError;
pub use framing::{Framer, FramingError};
pub use params::Params;
pub(crate) use params::refused_value;
pub use server::serve;
