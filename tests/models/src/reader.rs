//! Expressions of DynamoDB as text.

use serde_json::Value;

use crate::expressions::{Attribute, Comparison, Condition, Operand, Path};

/// Reads an expression by recursive descent. `NOT` binds tighter than `AND`, and `AND` tighter than `OR`.
pub(crate) struct Reader<'a> {
    words: std::vec::IntoIter<String>,
    request: &'a Value,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &str, request: &'a Value) -> Self {
        let mut words: Vec<String> = Vec::new();
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '#' | ':');
        let mut joins = false;
        for letter in text.chars() {
            match words.last_mut().filter(|_| joins) {
                Some(word) if is_word(letter) && word.chars().all(is_word) => word.push(letter),
                Some(word) if matches!((word.as_str(), letter), ("<" | ">", '=') | ("<", '>')) => word.push(letter),
                _ if letter.is_whitespace() => {}
                _ => words.push(letter.to_string()),
            }
            joins = !letter.is_whitespace();
        }
        Self { words: words.into_iter(), request }
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        self.words.next()
    }

    fn peek(&self) -> Option<&str> {
        self.words.as_slice().first().map(String::as_str)
    }

    pub(crate) fn has(&mut self, word: &str) -> bool {
        let has = self.peek() == Some(word);
        if has {
            self.next();
        }
        has
    }

    #[track_caller]
    pub(crate) fn takes(&mut self, word: &str) {
        let found = self.next();
        assert_eq!(found.as_deref(), Some(word), "before {:?}", self.words.as_slice());
    }

    pub(crate) fn ends(&self) {
        assert!(self.peek().is_none(), "what is not modelled follows: {:?}", self.words.as_slice());
    }

    pub(crate) fn any(&mut self) -> Condition {
        let mut conditions = vec![self.all()];
        while self.has("OR") {
            conditions.push(self.all());
        }
        one_or(conditions, Condition::Any)
    }

    fn all(&mut self) -> Condition {
        let mut conditions = vec![self.not()];
        while self.has("AND") {
            conditions.push(self.not());
        }
        one_or(conditions, Condition::All)
    }

    fn not(&mut self) -> Condition {
        if self.has("NOT") {
            return Condition::Not(Box::new(self.not()));
        }
        if self.has("(") {
            let condition = self.any();
            self.takes(")");
            return condition;
        }
        self.test()
    }

    fn test(&mut self) -> Condition {
        let function = self.peek().unwrap_or_default().to_owned();
        if self.words.as_slice().get(1).map(String::as_str) == Some("(") {
            self.next();
            self.takes("(");
            let path = self.path();
            let condition = match function.as_str() {
                "attribute_exists" => Condition::Exists(path),
                "attribute_not_exists" => Condition::NotExists(path),
                "attribute_type" => Condition::HasType(path, self.second()),
                "begins_with" => Condition::BeginsWith(path, self.second()),
                other => panic!("the function {other} is not modelled"),
            };
            self.takes(")");
            return condition;
        }
        let a = self.operand();
        let comparison = match self.next().unwrap_or_default().as_str() {
            "=" => Comparison::Equal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            "BETWEEN" => {
                let low = self.operand();
                self.takes("AND");
                return Condition::Between(a, low, self.operand());
            }
            other => panic!("the comparison {other:?} is not modelled"),
        };
        Condition::Compare(a, comparison, self.operand())
    }

    fn second(&mut self) -> Operand {
        self.takes(",");
        self.operand()
    }

    pub(crate) fn sum(&mut self) -> Operand {
        let mut sum = self.operand();
        while self.has("+") {
            sum = Operand::Sum(Box::new(sum), Box::new(self.operand()));
        }
        sum
    }

    fn operand(&mut self) -> Operand {
        let word = self.peek().unwrap_or_default().to_owned();
        if word.starts_with(':') {
            self.next();
            let value = &self.request["ExpressionAttributeValues"][&word];
            assert!(!value.is_null(), "the value {word} is missing");
            return Operand::Value(Attribute::of(value));
        }
        if self.words.as_slice().get(1).map(String::as_str) == Some("(") {
            assert_eq!(word, "if_not_exists", "the function is not modelled");
            self.next();
            self.takes("(");
            let (path, other) = (self.path(), self.second());
            self.takes(")");
            return Operand::IfNotExists(path, Box::new(other));
        }
        Operand::At(self.path())
    }

    pub(crate) fn path(&mut self) -> Path {
        let mut path = vec![self.name()];
        while self.has(".") {
            path.push(self.name());
        }
        path
    }

    fn name(&mut self) -> String {
        let word = self.next().expect("a name is missing");
        assert!(!word.starts_with(':'), "{word} is a value, not a name");
        match word.starts_with('#') {
            true => self.request["ExpressionAttributeNames"][&word].as_str().expect("the alias has a name").to_owned(),
            false => word,
        }
    }
}

fn one_or(mut conditions: Vec<Condition>, many: fn(Vec<Condition>) -> Condition) -> Condition {
    match conditions.len() {
        1 => conditions.remove(0),
        _ => many(conditions),
    }
}
