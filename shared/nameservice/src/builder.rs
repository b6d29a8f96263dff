//! What the builders of writes have in common.

use std::pin::Pin;

use crate::Result;

/// What a builder becomes when it is awaited.
pub(crate) type Future<T> = Pin<Box<dyn std::future::Future<Output = Result<T>> + Send>>;

/// Implements [`IntoFuture`](std::future::IntoFuture).
macro_rules! awaited {
    ($name:ident -> $output:ty, $self:ident => $run:expr) => {
        impl std::future::IntoFuture for $name {
            type Output = $crate::Result<$output>;
            type IntoFuture = $crate::builder::Future<$output>;

            fn into_future($self) -> Self::IntoFuture {
                Box::pin(async move { $run })
            }
        }
    };
}

/// The same for a write, whose field `call` is its call.
macro_rules! sent {
    ($name:ident -> $output:ty, $self:ident => $run:expr) => {
        impl $name {
            /// Sets the call: repeating it with the same call does not apply it twice.
            pub fn call(mut self, call: nameservice_model::Call) -> Self {
                self.call = call;
                self
            }
        }

        $crate::builder::awaited!($name -> $output, $self => $run);
    };
}

pub(crate) use {awaited, sent};
