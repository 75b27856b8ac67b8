package main

import (
	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
)

// identityFlags name the places of the identity in a record, as the options of the handlers do.
type identityFlags struct {
	tenant                 string // of all records
	idHeader, idJSON       string
	idLegacy               bool
	typeHeader, typeJSON   string
	typeFixed              string // of all records
	tenantHeader, tenantJS string
}

// add adds the flags without those for a fixed type and a fixed tenant.
func (f *identityFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.idHeader, "id-header", "", "the ID is in this header")
	s.StringVar(&f.idJSON, "id-json", "", "the ID is in this JSON `field`, such as order.id")
	s.BoolVar(
		&f.idLegacy, "id-legacy", false,
		"the handler has idem.LegacyStandardID: joined IDs have no word in front",
	)
	s.StringVar(&f.typeHeader, "type-header", "", "the type is in this header")
	s.StringVar(&f.typeJSON, "type-json", "", "the type is in this JSON `field`")
	s.StringVar(&f.tenantHeader, "tenant-header", "", "the tenant is in this header")
	s.StringVar(&f.tenantJS, "tenant-json", "", "the tenant is in this JSON `field`")
	for _, group := range [][]string{
		{"id-header", "id-json", "id-legacy"}, {"tenant", "tenant-header", "tenant-json"},
	} {
		cmd.MarkFlagsMutuallyExclusive(group...)
	}
}

// given reports whether a flag of add is set.
func (f *identityFlags) given() bool {
	return f.idLegacy || f.idHeader+f.idJSON+f.typeHeader+f.typeJSON+f.tenantHeader+f.tenantJS != ""
}

// identity has the extractors of a record.
type identity struct {
	id, typ, tenant idem.Extractor // tenant may be the zero value
}

func (f *identityFlags) identity() identity {
	either := func(header, field string, without idem.Extractor) idem.Extractor {
		switch {
		case header != "":
			return idem.FromHeader(header)
		case field != "":
			return idem.FromJSON(field)
		}
		return without
	}
	standard := idem.StandardID()
	if f.idLegacy {
		standard = idem.LegacyStandardID()
	}
	found := identity{
		id:  either(f.idHeader, f.idJSON, standard),
		typ: either(f.typeHeader, f.typeJSON, idem.StandardType()),
	}
	if f.typeFixed != "" {
		found.typ = idem.Fixed(f.typeFixed)
	}
	found.tenant = either(f.tenantHeader, f.tenantJS, idem.Fixed(f.tenant))
	return found
}
