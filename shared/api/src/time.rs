use jiff::Timestamp;

/// Returns a time as every answer shows it: UTC, with three decimals, so that times sort as text.
pub(crate) fn time_text(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_decimals_and_sort_as_text() {
        let texts = [0, 1, 999, 1_000, 61_500].map(|ms| time_text(Timestamp::from_millisecond(ms).unwrap()));
        assert_eq!(texts[0], "1970-01-01T00:00:00.000Z");
        assert_eq!(texts[4], "1970-01-01T00:01:01.500Z");
        assert!(texts.is_sorted());
    }
}
