//! How a type passes the reads of records, or a change feed, on to a value that has them.

/// Implements [`GraphSourceLookup`](crate::GraphSourceLookup) and [`NameService`](crate::NameService) for a type by those of a
/// value that it contains.
///
/// ```
/// struct Behind<N>(N);
///
/// nameservice_model::forward_names!(impl[N: nameservice_model::NameService] Behind<N>, this => &this.0);
/// ```
#[macro_export]
macro_rules! forward_names {
    (impl[$($generics:tt)*] $type:ty, $this:ident => $inner:expr) => {
        #[$crate::async_trait]
        impl<$($generics)*> $crate::GraphSourceLookup for $type {
            async fn graph_source(&self, address: &$crate::Address) -> $crate::Result<Option<$crate::Record>> {
                let $this = self;
                $crate::GraphSourceLookup::graph_source($inner, address).await
            }
        }

        #[$crate::async_trait]
        impl<$($generics)*> $crate::NameService for $type {
            async fn lookup(&self, address: &$crate::Address) -> $crate::Result<Option<$crate::Record>> {
                let $this = self;
                $crate::NameService::lookup($inner, address).await
            }
            async fn lookup_all(&self, addresses: &[$crate::Address]) -> $crate::Result<Vec<$crate::Record>> {
                let $this = self;
                $crate::NameService::lookup_all($inner, addresses).await
            }
            async fn list(
                &self,
                query: &$crate::ListQuery,
                visible: $crate::Visible<'_>,
            ) -> $crate::Result<$crate::Page<$crate::Listed>> {
                let $this = self;
                $crate::NameService::list($inner, query, visible).await
            }
            async fn snapshot(
                &self,
                limit: $crate::Limit,
                after: Option<&$crate::Cursor>,
                visible: $crate::Visible<'_>,
            ) -> $crate::Result<$crate::Page<$crate::Record>> {
                let $this = self;
                $crate::NameService::snapshot($inner, limit, after, visible).await
            }
            async fn dependents(&self, address: &$crate::Address) -> $crate::Result<Vec<$crate::Address>> {
                let $this = self;
                $crate::NameService::dependents($inner, address).await
            }
            async fn approximate_count(&self) -> $crate::Result<Option<u64>> {
                let $this = self;
                $crate::NameService::approximate_count($inner).await
            }
            async fn ping(&self) -> $crate::Result<()> {
                let $this = self;
                $crate::NameService::ping($inner).await
            }
            async fn search(
                &self,
                query: &$crate::SearchQuery,
                visible: $crate::Visible<'_>,
            ) -> $crate::Result<$crate::Page<$crate::Hit>> {
                let $this = self;
                $crate::NameService::search($inner, query, visible).await
            }
            async fn capabilities(&self) -> $crate::Result<$crate::Capabilities> {
                let $this = self;
                $crate::NameService::capabilities($inner).await
            }
        }
    };
}

/// Implements [`ChangeFeed`](crate::ChangeFeed) for a type by that of a value that it contains.
///
/// ```
/// struct Behind<F>(F);
///
/// nameservice_model::forward_feed!(impl[F: nameservice_model::ChangeFeed] Behind<F>, this => &this.0);
/// ```
#[macro_export]
macro_rules! forward_feed {
    (impl[$($generics:tt)*] $type:ty, $this:ident => $inner:expr) => {
        #[$crate::async_trait]
        impl<$($generics)*> $crate::ChangeFeed for $type {
            async fn position(&self) -> $crate::Result<u64> {
                let $this = self;
                $crate::ChangeFeed::position($inner).await
            }
            fn outage(&self) -> Option<String> {
                let $this = self;
                $crate::ChangeFeed::outage($inner)
            }
            fn is_immediate(&self) -> bool {
                let $this = self;
                $crate::ChangeFeed::is_immediate($inner)
            }
            async fn changes(&self, after: u64, limit: $crate::Limit) -> $crate::Result<$crate::Run> {
                let $this = self;
                $crate::ChangeFeed::changes($inner, after, limit).await
            }
            async fn wait(&self, after: u64, at_most: std::time::Duration) -> $crate::Result<()> {
                let $this = self;
                $crate::ChangeFeed::wait($inner, after, at_most).await
            }
            async fn history(
                &self,
                address: &$crate::Address,
                query: &$crate::HistoryQuery,
            ) -> $crate::Result<$crate::History> {
                let $this = self;
                $crate::ChangeFeed::history($inner, address, query).await
            }
        }
    };
}

#[cfg(test)]
mod tests {
    /// Returns the names of the functions of a trait.
    fn functions(of: &str) -> Vec<&'static str> {
        let traits = include_str!("traits.rs");
        let body = traits.split(of).nth(1).and_then(|rest| rest.split("\n}\n").next()).unwrap();
        body.split("    fn ").chain(body.split("async fn ")).skip(1).filter_map(|rest| rest.split('(').next()).collect()
    }

    #[test]
    fn every_function_of_the_traits_is_passed_on_also_those_with_a_default() {
        let here = include_str!("forward.rs");
        for (of, at_least) in
            [("pub trait NameService", 8), ("pub trait ChangeFeed", 6), ("pub trait GraphSourceLookup", 1)]
        {
            let functions = functions(of);
            let names: Vec<_> =
                functions.iter().filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')).collect();
            assert!(names.len() >= at_least, "{of}: {functions:?}");
            for name in names {
                assert!(here.contains(&format!("fn {name}(")), "{of}::{name} is not passed on");
            }
        }
    }
}
