//! What every SQS queue accepts.

/// The longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Returns JSON with two characters escaped that SQS rejects, even inside a string. It may be longer than before.
pub fn queue_json(json: String) -> String {
    json.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
}
