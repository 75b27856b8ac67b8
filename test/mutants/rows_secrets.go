package main

// keyringMutants are faults of sealed results (G-13).
func keyringMutants() []mutant {
	dedup := func(run string) owner { return ownedBy("dedup", run) }
	const ring = "dedup/keyring.go"
	return []mutant{
		{
			name: "keyring-seals-nothing", file: ring,
			old: "if k.Overhead() == 0 || r.IsZero() {", with: "if k.Overhead() >= 0 || r.IsZero() {",
			promise: "With a keyring no result is in the store in readable form.",
			tests:   dedup("^TestKeyring_|^TestDo_KeyRotation_G13$"),
		},
		{
			name: "keyring-not-bound-to-the-id", file: ring,
			old: "[...]string{key.Tenant, key.Scope, key.Type, key.ID}", with: "[...]string{key.Tenant, key.Scope, key.Type}",
			promise: "A result that was moved to another event does not open.",
			tests:   dedup("^TestKeyring_Refuses_G13$"),
		},
		{
			name: "keyring-not-bound-to-the-tenant", file: ring,
			old: "[...]string{key.Tenant, key.Scope, key.Type, key.ID}", with: "[...]string{key.Scope, key.Type, key.ID}",
			promise: "A result that was moved to another tenant does not open.",
			tests:   dedup("^TestKeyring_Refuses_G13$"),
		},
		{
			name: "keyring-without-lengths", file: ring,
			old: "\t\tbound = binary.BigEndian.AppendUint32(bound, uint32(len(part)))\n", with: "",
			promise: "No byte moves between the parts of the key that a result is bound to.",
			tests:   dedup("^TestKeyring_Refuses_G13$"),
		},
		{
			name: "keyring-not-bound-to-the-schema", file: ring,
			old: "bound = binary.BigEndian.AppendUint32(bytes.Clone(head), schema)", with: "bound = binary.BigEndian.AppendUint32(bytes.Clone(head), schema&0)",
			promise: "A result opens only for the schema that it was sealed for.",
			tests:   dedup("^TestKeyring_Refuses_G13$|^TestDo_ChangedSchemaDoesNotRun_G13$"),
		},
		{
			name: "keyring-opens-with-one-key", file: ring,
			old: "if k.derive[id] == nil {", with: "if k.derive[id] == nil || id != k.sealWith {",
			promise: "During a rotation the results of the earlier key open too.",
			tests:   dedup("^TestDo_KeyRotation_G13$"),
		},
		{
			name: "keyring-refuses-unsealed-too-early", file: ring,
			old: "if k != nil && k.refuseUnsealed {", with: "if k != nil {",
			promise: "Results from before the first key are replayed, unless RefuseUnsealed is set.",
			tests:   dedup("^TestKeyring_Unsealed_G13$|^TestDo_KeyRotation_G13$"),
		},
		{
			name: "keyring-accepts-unsealed", file: ring,
			old: "if k != nil && k.refuseUnsealed {", with: "if k != nil && k.refuseUnsealed && k.sealWith == \"\" {",
			promise: "With RefuseUnsealed no planted result is replayed.",
			tests:   dedup("^TestKeyring_Unsealed_G13$"),
		},
		{
			name: "keyring-none-returns-sealed", file: ring,
			old: "\tcase k == nil:\n\t\treturn Result{}, fmt.Errorf(\"%w: there is no keyring\", ErrSealed)\n", with: "\tcase k == nil:\n\t\treturn r, nil\n",
			promise: "A process without a keyring never replays a sealed result as it is.",
			tests:   dedup("^TestKeyring_"),
		},
		{
			name: "keyring-short-keys", file: ring,
			old: "if len(secret) < minKey {", with: "if len(secret) == 0 {",
			promise: "A secret has at least 32 bytes.",
			tests:   dedup("^TestNewKeyring_Mistakes$"),
		},
		{
			name: "keyring-seals-with-an-unknown-key", file: ring,
			old: "!ok && cfg.SealWith != \"\" {", with: "!ok && cfg.SealWith == \"-\" {",
			promise: "A keyring whose sealing key is missing is refused.",
			tests:   dedup("^TestNewKeyring_Mistakes$"),
		},
		{
			name: "keyring-logs-its-secrets", file: ring,
			old: "slog.String(\"keys\", strings.Join(slices.Sorted(maps.Keys(c.Keys)), \" \"))", with: "slog.String(\"keys\", strings.Join(slices.Sorted(maps.Keys(c.Keys)), \" \")+fmt.Sprint(c.Keys))",
			promise: "No log line has a secret (G-04).",
			tests:   dedup("^TestKeyring_ShowsNoSecret$"),
		},
		{
			name: "do-completes-unsealed", file: "dedup/entry.go",
			old: "sealed, err := e.keyring.Seal(e.claim.Key, r)\n\treturn errors.Join", with: "_, err := e.keyring.Seal(e.claim.Key, r)\n\tsealed := r\n\treturn errors.Join",
			promise: "Do seals the result that it stores.",
			tests:   dedup("^TestDo_KeyRotation_G13$"),
		},
		{
			name: "early-result-unsealed", file: "dedup/entry.go",
			old: "e.completion(sealed)); err != nil {", with: "e.completion(r)); err != nil && sealed.Schema >= 0 {",
			promise: "A result that is stored early is sealed.",
			tests:   dedup("^TestEntry_TryCompleteSeals_G13$"),
		},
		{
			name: "do-tx-completes-unsealed", file: "dedup/dotx.go",
			old: "sealed, err := e.g.cfg.Keyring.Seal(e.req.Key, e.ran)", with: "_, err = e.g.cfg.Keyring.Seal(e.req.Key, e.ran)\n\t\t\tsealed := e.ran",
			promise: "DoTx seals the result that it stores.",
			tests:   served("dedup/pgstore", "^TestDoTx_Sealed_G13$", "postgres"),
		},
		{
			name: "do-replays-what-does-not-open", file: "dedup/guard.go",
			old: "\t\t*a = Answer{}\n\t\treturn fmt.Errorf(\"key %q: %w\", key, err)\n", with: "\t\treturn nil\n",
			promise: "A result that does not open is an error, and neither replayed nor run again.",
			tests:   dedup("^TestDo_KeyRotation_G13$|^TestDo_ChangedSchemaDoesNotRun_G13$"),
		},
		{
			name: "do-forgets-the-size-of-the-seal", file: "dedup/do.go",
			old: "len(data)+g.cfg.Keyring.Overhead() > l.MaxResult()", with: "len(data) > l.MaxResult()",
			promise: "The bytes of the seal count for the limit of the store.",
			tests:   dedup("^TestDo_SealedSizeCounts$"),
		},
		{
			name: "http-look-up-replays-what-does-not-open", file: "httpidem/middleware.go",
			old:     "\t\tif answers[0].Result, err = q.m.cfg.Keyring.Open(req.Key, answers[0].Result); err != nil {\n\t\t\treturn dedup.Answer{} // Handler meets the error too, and answers\n\t\t}\n",
			with:    "",
			promise: "A look-up opens answers before it replays them.",
			tests:   ownedBy("httpidem", "^TestKeyring_"),
		},
		{
			name: "http-guard-without-keyring", file: "httpidem/middleware.go",
			old: "StoreTimeout: cfg.StoreTimeout, Keyring: cfg.Keyring,", with: "StoreTimeout: cfg.StoreTimeout,",
			promise: "Answers over HTTP are sealed.",
			tests:   ownedBy("httpidem", "^TestKeyring_"),
		},
	}
}

// secondSecretMutants are faults of the second secret of fingerprints (G-08).
func secondSecretMutants() []mutant {
	const conflicts = "^TestConformance$/^(claim|look):_.*second"
	memory := func(run string) owner { return ownedBy("dedup/memstore", run) }
	return []mutant{
		{
			name: "second-fingerprint-is-a-conflict", file: "dedup/claim.go",
			old: "return Differ(known, r.Fingerprint) && (known != r.SecondFingerprint || known.IsChecksum())", with: "return Differ(known, r.Fingerprint)",
			promise: "While a secret changes, a copy is no conflict.",
			tests:   memory("^TestConformance$"),
		},
		{
			name: "second-fingerprint-hides-conflicts", file: "dedup/claim.go",
			old: "return Differ(known, r.Fingerprint) && (known != r.SecondFingerprint || known.IsChecksum())", with: "return Differ(known, r.Fingerprint) && r.SecondFingerprint == (Fingerprint{})",
			promise: "While a secret changes, another content is still a conflict.",
			tests:   memory("^TestConformance$"),
		},
		{
			name: "second-checksum-counts", file: "dedup/claim.go",
			old: "(known != r.SecondFingerprint || known.IsChecksum())", with: "known != r.SecondFingerprint",
			promise: "A checksum is never compared as a second fingerprint.",
			tests:   ownedBy("dedup", "^TestRequestDiffers_G08$"),
		},
		{
			name: "second-checksum-is-sent", file: "dedup/claim.go",
			old: "if r.SecondFingerprint == (Fingerprint{}) || r.Fingerprint.Comparison() != ByFingerprint ||\n\t\tr.SecondFingerprint.IsChecksum() {", with: "if r.SecondFingerprint == (Fingerprint{}) || r.Fingerprint.Comparison() != ByFingerprint {",
			promise: "Stores that compare on their server get no checksum as a second fingerprint.",
			tests:   ownedBy("dedup", "^TestRequestDiffers_G08$"),
		},
		{
			name: "second-secret-is-dropped", file: "internal/engine/settings.go",
			old: "return s.Fingerprint(ctx, m, s.SecondSecret)", with: "return s.Fingerprint(ctx, m, nil)",
			promise: "A handler compares copies under both of its secrets.",
			tests:   ownedBy(".", "^TestSecondSecret_Rotation_G08$"),
		},
		{
			name: "second-secret-is-the-first", file: "internal/identity/fingerprint.go",
			old: "m.second = hmac.New(sha256.New, second)", with: "m.second = hmac.New(sha256.New, secret)",
			promise: "The second fingerprint is made with the second secret.",
			tests:   ownedBy(".", "^TestSecondSecret_Rotation_G08$"),
		},
		{
			name: "second-secret-replaces-the-first", file: "internal/engine/resolve.go",
			old: "t.request.Fingerprint, t.request.SecondFingerprint = content.First, content.Second", with: "t.request.Fingerprint, t.request.SecondFingerprint = content.Second, content.First",
			promise: "Records are written under the first secret, so that the second one can be dropped.",
			tests:   ownedBy(".", "^TestSecondSecret_Rotation_G08$"),
		},
		{
			name: "second-secret-may-be-short", file: "internal/engine/settings.go",
			old: "\tif s.SecondSecret != nil {\n", with: "\tif len(s.SecondSecret) > 16 {\n",
			promise: "A second secret has at least 16 bytes.",
			tests:   ownedBy(".", "^TestWiring_AllMistakesAtOnceEachWithItsPlace$"),
		},
		{
			name: "http-second-secret-is-dropped", file: "httpidem/request.go",
			old: "payloadFingerprint(cfg.SecondSecret, q.who.tenant, p, form, parsed)", with: "payloadFingerprint(cfg.Secret, q.who.tenant, p, form, parsed)",
			promise: "A request is compared under both secrets.",
			tests:   ownedBy("httpidem", "^TestSecondSecret_"),
		},
		{
			name: "http-look-up-without-second-secret", file: "httpidem/middleware.go",
			old: "\t\tSecondFingerprint: q.call.SecondFingerprint, Retention: q.m.cfg.Retention, AnyAge: true,\n", with: "\t\tRetention: q.m.cfg.Retention, AnyAge: true,\n",
			promise: "A look-up compares under both secrets too.",
			tests:   ownedBy("httpidem", "^TestSecondSecret_"),
		},
		{
			name: "follower-without-second-fingerprint", file: "dedup/call.go",
			old: "r := Request{Fingerprint: c.Fingerprint, SecondFingerprint: c.SecondFingerprint}", with: "r := Request{Fingerprint: c.Fingerprint}",
			promise: "A changed secret is no conflict within one process either.",
			tests:   ownedBy("dedup", "^TestDo_SecretRotationInOneProcess_G08$"),
		},
		{
			name: "do-second-fingerprint-is-dropped", file: "dedup/guard.go",
			old: "Key: c.Key, Fingerprint: c.Fingerprint, SecondFingerprint: c.SecondFingerprint,", with: "Key: c.Key, Fingerprint: c.Fingerprint,",
			promise: "OrSamePayload reaches the store.",
			tests:   ownedBy("dedup", "^TestDo_SecretRotation_G08$"),
		},
		{
			name: "redis-second-fingerprint-is-dropped", file: "dedup/redisstore/claim.lua",
			old: "\n  and ARGV[4] ~= rec.fingerprint\n", with: "\n",
			promise: "The script that claims accepts a second fingerprint.",
			tests:   served("dedup/redisstore", conflicts, "redis"),
		},
		{
			name: "redis-second-fingerprint-hides-conflicts", file: "dedup/redisstore/claim.lua",
			old: "\n  and ARGV[4] ~= rec.fingerprint\n", with: "\n  and not ARGV[4]\n",
			promise: "With a second fingerprint another content is still a conflict.",
			tests:   served("dedup/redisstore", conflicts, "redis"),
		},
		{
			name: "postgres-second-fingerprint-is-dropped", file: "dedup/pgstore/sql/answer_keys.sql",
			old: " AND k.fingerprint <> r.second\n", with: "\n",
			promise: "A claim accepts a second fingerprint.",
			tests:   served("dedup/pgstore", "^TestConformance$/^prepared$/^claim:_.*second", "postgres"),
		},
		{
			name: "postgres-second-fingerprint-of-look-ups", file: "dedup/pgstore/sql/answer_events.sql",
			old: " AND k.fingerprint <> r.second\n", with: "\n",
			promise: "A finished event is compared with a second fingerprint too.",
			tests:   served("dedup/pgstore", "^TestConformance$/^prepared$/^(claim|look):_.*second|^TestTxConformance$/^prepared$/second", "postgres"),
		},
	}
}
