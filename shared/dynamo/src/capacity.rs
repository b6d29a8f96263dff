//! The cost of requests: each asks DynamoDB to report it in the answer, which is free.

use aws_sdk_dynamodb::{
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeSerializationInterceptorContextMut},
    error::BoxError,
    operation::{
        batch_get_item::{BatchGetItemInput, BatchGetItemOutput},
        batch_write_item::{BatchWriteItemInput, BatchWriteItemOutput},
        create_table::CreateTableOutput,
        delete_item::{DeleteItemInput, DeleteItemOutput},
        describe_continuous_backups::DescribeContinuousBackupsOutput,
        describe_table::DescribeTableOutput,
        describe_time_to_live::DescribeTimeToLiveOutput,
        get_item::{GetItemInput, GetItemOutput},
        put_item::{PutItemInput, PutItemOutput},
        query::{QueryInput, QueryOutput},
        scan::{ScanInput, ScanOutput},
        transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput},
        update_continuous_backups::UpdateContinuousBackupsOutput,
        update_item::{UpdateItemInput, UpdateItemOutput},
        update_time_to_live::UpdateTimeToLiveOutput,
    },
    types::{ConsumedCapacity, ReturnConsumedCapacity},
};

/// The part of an operation's answers that is about its cost.
pub trait Metered {
    /// Returns the capacity units that the request has taken; `None` if the answer does not say. A rejected write is
    /// answered with an error, which never says.
    fn units(&self) -> Option<f64> {
        None
    }
}

macro_rules! metered {
    ($($output:ident)+; lists $($list:ident)+; free $($free:ident)+) => {
        $(impl Metered for $output {
            fn units(&self) -> Option<f64> {
                self.consumed_capacity().and_then(ConsumedCapacity::capacity_units)
            }
        })+
        // One entry for each table.
        $(impl Metered for $list {
            fn units(&self) -> Option<f64> {
                let tables = self.consumed_capacity();
                let units: Option<f64> = tables.iter().map(ConsumedCapacity::capacity_units).sum();
                units.filter(|_| !tables.is_empty())
            }
        })+
        $(impl Metered for $free {})+
    };
}

metered! {
    GetItemOutput QueryOutput ScanOutput PutItemOutput UpdateItemOutput DeleteItemOutput;
    lists BatchGetItemOutput BatchWriteItemOutput TransactWriteItemsOutput;
    free CreateTableOutput DescribeTableOutput DescribeTimeToLiveOutput UpdateTimeToLiveOutput
        DescribeContinuousBackupsOutput UpdateContinuousBackupsOutput
}

/// Asks for the units of every request that consumes any.
#[derive(Debug)]
pub(crate) struct AskForUnits;

macro_rules! ask {
    ($input:expr; $($kind:ident)+) => {
        $(if let Some(input) = $input.downcast_mut::<$kind>() {
            input.return_consumed_capacity.get_or_insert(ReturnConsumedCapacity::Total);
            return Ok(());
        })+
    };
}

impl Intercept for AskForUnits {
    fn name(&self) -> &'static str {
        "AskForUnits"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        ask!(context.input_mut(); GetItemInput QueryInput UpdateItemInput TransactWriteItemsInput BatchGetItemInput PutItemInput
            DeleteItemInput BatchWriteItemInput ScanInput);
        Ok(())
    }
}
