//! OpenFlow error types and codes (OF 1.3.5 §7.4.4), and the error every decoder here returns.

/// The `type` and `code` of an OFPT_ERROR message. The constants carry the specification's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode {
    /// `OFPET_*`: which part of the protocol was violated.
    pub error_type: u16,
    /// The reason within that type.
    pub code: u16,
}

/// Declares the constants and their names from one list.
macro_rules! error_codes {
    ($($type_name:ident = $type:literal { $($name:ident = $code:literal),+ $(,)? })+) => {
        impl ErrorCode {
            $($(
                #[doc = concat!(stringify!($type_name), " (", $type, "), code ", $code, ".")]
                pub const $name: ErrorCode = ErrorCode { error_type: $type, code: $code };
            )+)+

            /// The specification's name of this error, `None` for a pair that it does not define.
            pub fn name(self) -> Option<&'static str> {
                match (self.error_type, self.code) {
                    $($(($type, $code) => Some(stringify!($name)),)+)+
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    OFPET_HELLO_FAILED = 0 { OFPHFC_INCOMPATIBLE = 0, OFPHFC_EPERM = 1 }
    OFPET_BAD_REQUEST = 1 {
        OFPBRC_BAD_VERSION = 0, OFPBRC_BAD_TYPE = 1, OFPBRC_BAD_MULTIPART = 2,
        OFPBRC_BAD_EXPERIMENTER = 3, OFPBRC_BAD_EXP_TYPE = 4, OFPBRC_EPERM = 5,
        OFPBRC_BAD_LEN = 6, OFPBRC_BUFFER_EMPTY = 7, OFPBRC_BUFFER_UNKNOWN = 8,
        OFPBRC_BAD_TABLE_ID = 9, OFPBRC_IS_SLAVE = 10, OFPBRC_BAD_PORT = 11,
        OFPBRC_BAD_PACKET = 12, OFPBRC_MULTIPART_BUFFER_OVERFLOW = 13,
    }
    OFPET_BAD_ACTION = 2 {
        OFPBAC_BAD_TYPE = 0, OFPBAC_BAD_LEN = 1, OFPBAC_BAD_EXPERIMENTER = 2,
        OFPBAC_BAD_EXP_TYPE = 3, OFPBAC_BAD_OUT_PORT = 4, OFPBAC_BAD_ARGUMENT = 5,
        OFPBAC_EPERM = 6, OFPBAC_TOO_MANY = 7, OFPBAC_BAD_QUEUE = 8, OFPBAC_BAD_OUT_GROUP = 9,
        OFPBAC_MATCH_INCONSISTENT = 10, OFPBAC_UNSUPPORTED_ORDER = 11, OFPBAC_BAD_TAG = 12,
        OFPBAC_BAD_SET_TYPE = 13, OFPBAC_BAD_SET_LEN = 14, OFPBAC_BAD_SET_ARGUMENT = 15,
    }
    OFPET_BAD_INSTRUCTION = 3 {
        OFPBIC_UNKNOWN_INST = 0, OFPBIC_UNSUP_INST = 1, OFPBIC_BAD_TABLE_ID = 2,
        OFPBIC_UNSUP_METADATA = 3, OFPBIC_UNSUP_METADATA_MASK = 4, OFPBIC_BAD_EXPERIMENTER = 5,
        OFPBIC_BAD_EXP_TYPE = 6, OFPBIC_BAD_LEN = 7, OFPBIC_EPERM = 8, OFPBIC_DUP_INST = 9,
    }
    OFPET_BAD_MATCH = 4 {
        OFPBMC_BAD_TYPE = 0, OFPBMC_BAD_LEN = 1, OFPBMC_BAD_TAG = 2, OFPBMC_BAD_DL_ADDR_MASK = 3,
        OFPBMC_BAD_NW_ADDR_MASK = 4, OFPBMC_BAD_WILDCARDS = 5, OFPBMC_BAD_FIELD = 6,
        OFPBMC_BAD_VALUE = 7, OFPBMC_BAD_MASK = 8, OFPBMC_BAD_PREREQ = 9, OFPBMC_DUP_FIELD = 10,
        OFPBMC_EPERM = 11,
    }
    OFPET_FLOW_MOD_FAILED = 5 {
        OFPFMFC_UNKNOWN = 0, OFPFMFC_TABLE_FULL = 1, OFPFMFC_BAD_TABLE_ID = 2,
        OFPFMFC_OVERLAP = 3, OFPFMFC_EPERM = 4, OFPFMFC_BAD_TIMEOUT = 5,
        OFPFMFC_BAD_COMMAND = 6, OFPFMFC_BAD_FLAGS = 7,
    }
    OFPET_GROUP_MOD_FAILED = 6 {
        OFPGMFC_GROUP_EXISTS = 0, OFPGMFC_INVALID_GROUP = 1, OFPGMFC_WEIGHT_UNSUPPORTED = 2,
        OFPGMFC_OUT_OF_GROUPS = 3, OFPGMFC_OUT_OF_BUCKETS = 4, OFPGMFC_CHAINING_UNSUPPORTED = 5,
        OFPGMFC_WATCH_UNSUPPORTED = 6, OFPGMFC_LOOP = 7, OFPGMFC_UNKNOWN_GROUP = 8,
        OFPGMFC_CHAINED_GROUP = 9, OFPGMFC_BAD_TYPE = 10, OFPGMFC_BAD_COMMAND = 11,
        OFPGMFC_BAD_BUCKET = 12, OFPGMFC_BAD_WATCH = 13, OFPGMFC_EPERM = 14,
    }
    OFPET_PORT_MOD_FAILED = 7 {
        OFPPMFC_BAD_PORT = 0, OFPPMFC_BAD_HW_ADDR = 1, OFPPMFC_BAD_CONFIG = 2,
        OFPPMFC_BAD_ADVERTISE = 3, OFPPMFC_EPERM = 4,
    }
    OFPET_TABLE_MOD_FAILED = 8 { OFPTMFC_BAD_TABLE = 0, OFPTMFC_BAD_CONFIG = 1, OFPTMFC_EPERM = 2 }
    OFPET_QUEUE_OP_FAILED = 9 { OFPQOFC_BAD_PORT = 0, OFPQOFC_BAD_QUEUE = 1, OFPQOFC_EPERM = 2 }
    OFPET_SWITCH_CONFIG_FAILED = 10 {
        OFPSCFC_BAD_FLAGS = 0, OFPSCFC_BAD_LEN = 1, OFPSCFC_EPERM = 2,
    }
    OFPET_ROLE_REQUEST_FAILED = 11 {
        OFPRRFC_STALE = 0, OFPRRFC_UNSUP = 1, OFPRRFC_BAD_ROLE = 2,
    }
    OFPET_METER_MOD_FAILED = 12 {
        OFPMMFC_UNKNOWN = 0, OFPMMFC_METER_EXISTS = 1, OFPMMFC_INVALID_METER = 2,
        OFPMMFC_UNKNOWN_METER = 3, OFPMMFC_BAD_COMMAND = 4, OFPMMFC_BAD_FLAGS = 5,
        OFPMMFC_BAD_RATE = 6, OFPMMFC_BAD_BURST = 7, OFPMMFC_BAD_BAND = 8,
        OFPMMFC_BAD_BAND_VALUE = 9, OFPMMFC_OUT_OF_METERS = 10, OFPMMFC_OUT_OF_BANDS = 11,
    }
    OFPET_TABLE_FEATURES_FAILED = 13 {
        OFPTFFC_BAD_TABLE = 0, OFPTFFC_BAD_METADATA = 1, OFPTFFC_BAD_TYPE = 2,
        OFPTFFC_BAD_LEN = 3, OFPTFFC_BAD_ARGUMENT = 4, OFPTFFC_EPERM = 5,
    }
    OFPET_EXPERIMENTER = 0xffff {
        OFPBFC_UNKNOWN = 2300, OFPBFC_EPERM = 2301, OFPBFC_BAD_ID = 2302,
        OFPBFC_BUNDLE_EXIST = 2303, OFPBFC_BUNDLE_CLOSED = 2304, OFPBFC_OUT_OF_BUNDLES = 2305,
        OFPBFC_BAD_TYPE = 2306, OFPBFC_BAD_FLAGS = 2307, OFPBFC_MSG_BAD_LEN = 2308,
        OFPBFC_MSG_BAD_XID = 2309, OFPBFC_MSG_UNSUP = 2310, OFPBFC_MSG_CONFLICT = 2311,
        OFPBFC_MSG_TOO_MANY = 2312, OFPBFC_MSG_FAILED = 2313, OFPBFC_TIMEOUT = 2314,
        OFPBFC_BUNDLE_IN_PROGRESS = 2315,
    }
}

impl ErrorCode {
    /// Whether it is an experimenter's: of those only the ONF's, about bundles, have names here.
    pub fn is_experimenter(self) -> bool {
        self.error_type == 0xffff
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error type {}, code {}", self.error_type, self.code),
        }
    }
}

/// Why a message was refused, as it goes back to the peer in an OFPT_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct DecodeError {
    /// What to put into the OFPT_ERROR.
    pub code: ErrorCode,
    /// What was wrong, for a log.
    pub detail: &'static str,
}

impl DecodeError {
    /// An error with its explanation.
    pub const fn new(code: ErrorCode, detail: &'static str) -> DecodeError {
        DecodeError { code, detail }
    }
}
