//! The page that shows the figures, docs/scale.md: between two comments each, so that it can be compared and written.

use std::path::PathBuf;

use crate::report::Block;

/// Returns the path of the page.
pub fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scale.md"))
}

/// Returns the page with these figures in it. Fails, naming the block, if it has no place for one.
pub fn with(page: &str, blocks: &[Block]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, content) in blocks {
        let (begin, end) = (format!("<!-- {name}: made by cargo scale -->\n"), format!("<!-- end of {name} -->\n"));
        let missing = || format!("docs/scale.md has no `{}` followed by `{}`", begin.trim(), end.trim());
        let from = page.find(&begin).ok_or_else(missing)? + begin.len();
        let to = from + page[from..].find(&end).ok_or_else(missing)?;
        page.replace_range(from..to, &format!("\n{content}\n"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_replaced_and_the_rest_is_kept() {
        let page = "# Page\n<!-- one: made by cargo scale -->\nold\n<!-- end of one -->\nrest\n";
        let written = with(page, &[("one", "new\n".to_owned())]).unwrap();
        assert_eq!(written, "# Page\n<!-- one: made by cargo scale -->\n\nnew\n\n<!-- end of one -->\nrest\n");
        assert_eq!(with(&written, &[("one", "new\n".to_owned())]).unwrap(), written);
    }

    #[test]
    fn a_page_without_a_place_for_a_block_is_an_error_that_names_it() {
        let error = with("# Page\n", &[("two", String::new())]).unwrap_err();
        assert!(error.contains("two"), "{error}");
    }
}
