#!/usr/bin/env bash
# Creates the table that the nameservice and Fluree's servers share, with the AWS CLI: create-table.sh [NAME]
set -euo pipefail
table=${1:-fluree-nameservice}

aws dynamodb create-table --cli-input-json "file://$(dirname "$0")/create-table.json" --table-name "$table"
aws dynamodb wait table-exists --table-name "$table"
aws dynamodb update-time-to-live --table-name "$table" --time-to-live-specification Enabled=true,AttributeName=ttl
aws dynamodb update-continuous-backups --table-name "$table" --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true
