package safetext

// conditionOf returns the name of a Postgres code, or of its class.
func conditionOf(code string) string {
	if name, ok := conditions[code]; ok {
		return name
	}
	if len(code) == 5 {
		return classes[code[:2]]
	}
	return ""
}

var classes = map[string]string{
	"00": "successful_completion", "01": "warning", "02": "no_data",
	"03": "sql_statement_not_yet_complete",
	"08": "connection_exception", "09": "triggered_action_exception", "0A": "feature_not_supported",
	"0B": "invalid_transaction_initiation", "0F": "locator_exception", "0L": "invalid_grantor",
	"0P": "invalid_role_specification",
	"0Z": "diagnostics_exception", "10": "xquery_error", "20": "case_not_found",
	"21": "cardinality_violation",
	"22": "data_exception", "23": "integrity_constraint_violation", "24": "invalid_cursor_state",
	"25": "invalid_transaction_state", "26": "invalid_sql_statement_name",
	"27": "triggered_data_change_violation",
	"28": "invalid_authorization_specification",
	"2B": "dependent_privilege_descriptors_still_exist",
	"2D": "invalid_transaction_termination", "2F": "sql_routine_exception",
	"34": "invalid_cursor_name",
	"38": "external_routine_exception", "39": "external_routine_invocation_exception",
	"3B": "savepoint_exception",
	"3D": "invalid_catalog_name", "3F": "invalid_schema_name", "40": "transaction_rollback",
	"42": "syntax_error_or_access_rule_violation", "44": "with_check_option_violation",
	"53": "insufficient_resources",
	"54": "program_limit_exceeded", "55": "object_not_in_prerequisite_state",
	"57": "operator_intervention",
	"58": "system_error", "F0": "config_file_error", "HV": "fdw_error", "P0": "plpgsql_error",
	"XX": "internal_error",
}

var conditions = map[string]string{
	"08001": "sqlclient_unable_to_establish_sqlconnection", "08003": "connection_does_not_exist",
	"08004": "sqlserver_rejected_establishment_of_sqlconnection", "08006": "connection_failure",
	"08007": "transaction_resolution_unknown", "08P01": "protocol_violation",
	"22000": "data_exception", "22001": "string_data_right_truncation",
	"22003": "numeric_value_out_of_range",
	"22004": "null_value_not_allowed", "22007": "invalid_datetime_format",
	"22008": "datetime_field_overflow",
	"22012": "division_by_zero", "22021": "character_not_in_repertoire",
	"22023": "invalid_parameter_value",
	"22025": "invalid_escape_sequence", "2202E": "array_subscript_error",
	"22030": "duplicate_json_object_key_value",
	"22032": "invalid_json_text", "22P02": "invalid_text_representation",
	"22P03": "invalid_binary_representation",
	"22P05": "untranslatable_character",
	"23001": "restrict_violation", "23502": "not_null_violation", "23503": "foreign_key_violation",
	"23505": "unique_violation",
	"23514": "check_violation", "23P01": "exclusion_violation",
	"25001": "active_sql_transaction", "25006": "read_only_sql_transaction",
	"25P02": "in_failed_sql_transaction",
	"25P03": "idle_in_transaction_session_timeout", "25P04": "transaction_timeout",
	"28P01": "invalid_password",
	"40001": "serialization_failure", "40003": "statement_completion_unknown",
	"40P01": "deadlock_detected",
	"42501": "insufficient_privilege", "42601": "syntax_error", "42622": "name_too_long",
	"42701": "duplicate_column",
	"42702": "ambiguous_column", "42703": "undefined_column", "42704": "undefined_object",
	"42710": "duplicate_object",
	"42725": "ambiguous_function", "42804": "datatype_mismatch", "42846": "cannot_coerce",
	"42883": "undefined_function",
	"42P01": "undefined_table", "42P02": "undefined_parameter",
	"42P05": "duplicate_prepared_statement", "42P07": "duplicate_table",
	"42P10": "invalid_column_reference", "42P18": "indeterminate_datatype",
	"53100": "disk_full", "53200": "out_of_memory", "53300": "too_many_connections",
	"54000": "program_limit_exceeded",
	"55006": "object_in_use", "55P03": "lock_not_available",
	"57014": "query_canceled", "57P01": "admin_shutdown", "57P02": "crash_shutdown",
	"57P03": "cannot_connect_now",
	"57P04": "database_dropped", "57P05": "idle_session_timeout", "58030": "io_error",
	"P0001": "raise_exception", "P0002": "no_data_found", "P0003": "too_many_rows",
	"P0004": "assert_failure",
	"XX000": "internal_error", "XX001": "data_corrupted", "XX002": "index_corrupted",
}
